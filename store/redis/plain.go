package redis

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/store"
)

var (
	_ store.Store  = (*plain)(nil)
	_ store.Shards = (*plain)(nil)
)

const (
	wantedPlain = 1
	// plainSchema is added to the version, so that a program that uses scripts refuses
	// the store as newer than it knows, and none reads the other's rows.
	plainSchema = 1_000_000
	// day is how long a session is remembered after it lapsed, in seconds.
	day = 86400
	// ever is the life of a key that only tells how long ago it was set, in seconds.
	ever = 10 * 365 * day
	// blockingWires is how many calls may wait for commands at once.
	blockingWires = 64
)

// plain is a store that uses only what SableDB has of Redis's commands
// (?scripts=off): no scripts, no TIME, no pub/sub, no AUTH.
//
// An operation is a transaction: WATCH, reads, MULTI, writes, EXEC, tried again
// with jitter when another came in between. Its clock is the server's own expiry
// of keys, and so counts whole seconds: a session is a key that expires, and is
// over when the key is gone. Timeouts are rounded up to whole seconds, what remains
// of them is never shown as less than it is, and sessions whose timing that makes
// unsafe are refused. Wall times (Since, Started, At, Updated) are those of the
// clients, for people to read; ages come from keys that expire in ten years. The
// floor of a new term or revision is the client's wall clock, as the server tells
// none.
//
// After a restart that may have lost the latest writes nothing is given away
// for one T, as with scripts. A server that does not tell its runs apart (SableDB)
// is taken to have been started again when a connection to it broke.
type plain struct {
	target *target
	keep   int
	root   string
	log    *slog.Logger
	dialer *dialer
	// heart carries sessions and nothing else; blocks those who wait.
	heart, rest, blocks *pool
	// suspect: a connection broke, and nobody has written that down.
	suspect atomic.Bool
	// skew is added to this host's wall clock; tests replace it.
	skew func() time.Duration
}

func openPlain(ctx context.Context, cfg Config, t *target) (*plain, error) {
	s := &plain{target: t, keep: cfg.KeepEvents, root: "{" + t.prefix + "}:", log: cfg.Logger, skew: func() time.Duration { return 0 }}
	if s.keep <= 0 {
		s.keep = defaultKeepEvents
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.dialer = &dialer{target: t, log: s.log}
	s.heart, s.rest = newPool(heartLines, s.connect, s.broke), newPool(restLines, s.connect, s.broke)
	s.blocks = newPool(blockingWires, s.connect, s.broke)
	var err error
	if cfg.NoMigrate {
		err = s.look(ctx, ask("PING"))
	} else {
		_, _, err = s.Migrate(ctx)
	}
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("opening %s: %w", t.location, err)
	}
	return s, nil
}

// connect makes a connection, and notices a server that may have lost writes.
func (s *plain) connect(ctx context.Context) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := s.dialer.connect(ctx, "tcp", s.target.addrs[0])
	if err != nil {
		return nil, err
	}
	return prepare(ctx, conn, s.arrive)
}

// broke notes that a connection did: none of the others is used before the server has been
// asked who it is.
func (s *plain) broke() {
	s.suspect.Store(true)
	s.heart.drop()
	s.rest.drop()
	s.blocks.drop()
}

// arrive writes down that the server is another one than before, or was
// started again.
func (s *plain) arrive(w *connection) error {
	t := &tx{w: w}
	info, known := ask("INFO"), ask("GET", s.root+"server")
	if err := t.read(info, known); err != nil {
		return err
	}
	about := parseInfo(info.text())
	run, age := about["run_id"], int64(0)
	if run == "" {
		run = about["node_id"]
	} else if up, err := strconv.ParseInt(about["uptime_in_seconds"], 10, 64); err == nil {
		age = max(0, up-1)
	}
	suspect := about["run_id"] == "" && s.suspect.Load()
	if known.text() == "of "+run && !suspect {
		return nil
	}
	t.do("SET", s.root+"server", "of "+run)
	if age < day {
		t.do("SET", s.root+"lost", "1", "EX", strconv.FormatInt(day-age, 10))
	}
	_, err := t.commit()
	if err != nil && strings.Contains(err.Error(), "READONLY") {
		return nil // a replica can at least be looked at
	}
	if err == nil && suspect {
		s.suspect.Store(false)
	}
	return err
}

// Close implements [store.Admin].
func (s *plain) Close() error {
	s.heart.close()
	s.rest.close()
	s.blocks.close()
	return nil
}

// Inspect implements [store.Admin].
func (s *plain) Inspect(ctx context.Context) (store.Info, error) {
	out := store.Info{Kind: "redis", Location: s.target.location, Wanted: wantedPlain}
	info, schema := ask("INFO"), ask("GET", s.root+"schema")
	if err := s.look(ctx, info, schema); err != nil {
		return out, err
	}
	about := parseInfo(info.text())
	switch {
	case about["redis_version"] != "" || about["valkey_version"] != "":
		out.Server = about.String()
		out.Warnings = append(out.Warnings, "this server has scripts: leave scripts=off out of the URL, and a lapse is found to the millisecond and changes are told at once")
	case about["node_id"] != "":
		out.Server = "SableDB, node " + about["node_id"]
	default:
		out.Server = "a server that does not tell its name"
	}
	if about["role"] == "replica" || about["role"] == "slave" {
		out.Warnings = append(out.Warnings, "the server is a replica: it can only be read; name its primary")
	}
	out.Warnings = append(out.Warnings,
		"without scripts the store counts whole seconds and the clients poll: intervals of 1 s and more",
		"a crash of the server can lose the last moments, and two holders may meet for up to T; check the term wherever effects land")
	if found := schema.number(); found > plainSchema {
		out.Schema = int(found - plainSchema)
	} else {
		out.Schema = int(found)
	}
	out.Now = s.now()
	return out, nil
}

// Migrate implements [store.Admin].
func (s *plain) Migrate(ctx context.Context) (from, to int, err error) {
	err = s.transact(ctx, s.rest, writes, func(t *tx) error {
		key := s.root + "schema"
		schema := ask("GET", key)
		if err := t.watch([]string{key}, schema); err != nil {
			return err
		}
		if err := fits(schema); err != nil {
			return err
		}
		if from = int(max(0, schema.number()-plainSchema)); from == wantedPlain {
			return nil
		}
		s.found(t)
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	return from, wantedPlain, nil
}

// found writes the schema. Ids of events begin at the clock, so that those of a
// store that lost everything go on above the old ones.
func (s *plain) found(t *tx) {
	t.do("SET", s.root+"schema", strconv.Itoa(plainSchema+wantedPlain))
	t.do("SET", s.root+"events-base", strconv.FormatInt(s.now().UnixMilli(), 10), "NX")
}

// fits refuses a store that is not this program's to use.
func fits(schema *command) error {
	switch found := schema.number(); {
	case schema.nothing() || found == plainSchema+wantedPlain:
		return nil
	case found > plainSchema+wantedPlain:
		return fmt.Errorf("%w: the store's is version %d without scripts and this program knows up to %d: use a newer understudy",
			store.ErrSchema, found-plainSchema, wantedPlain)
	default:
		return fmt.Errorf("%w: this prefix is used with scripts: leave scripts=off out of the URL, or name another prefix", store.ErrSchema)
	}
}

// Registry implements [store.Shards].
func (s *plain) Registry() shard.Registry { return plainRegistry{s} }

// Commands implements [store.Shards].
func (s *plain) Commands() shard.Commands { return plainCommands{s} }

// now is the client's clock: see [plain].
func (s *plain) now() time.Time { return time.Now().Add(s.skew()).Round(time.Microsecond) }

// seconds of a time to live: rounded up, and at least one.
func seconds(d time.Duration) string { return strconv.FormatInt(whole(d), 10) }

func whole(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}

// ageOf tells how long ago a key was set to live for ever seconds: the longest
// when it is gone.
func ageOf(ttl *command) time.Duration {
	return time.Duration(ever-min(ever, max(0, ttl.number()))) * time.Second
}

// left is what remains of a key, never less than it is: a server may round to
// the nearest second. 0 when it is gone.
func left(ttl *command, most time.Duration) time.Duration {
	n := ttl.number()
	if n < 0 {
		return 0
	}
	return min(time.Duration(n+1)*time.Second, time.Duration(whole(most))*time.Second)
}

// change is a number that is never the same twice.
func change() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return strconv.FormatUint(binary.BigEndian.Uint64(b[:])>>1, 10)
}

// document is one of the rows of this store's own, which can always be written.
func document(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("redis: a row that cannot be written: %v", err))
	}
	return string(text)
}

// unsafeTiming refuses a timing for which whole seconds are too coarse.
func unsafeTiming(t lease.Timing) error {
	if t.Interval < time.Second || t.Timeout <= 2*t.Interval {
		i := max(t.Interval, time.Second)
		i = time.Duration(whole(i)) * time.Second
		return fmt.Errorf("%w: interval %v and timeout %v on a store without scripts, which counts whole seconds; use %v and %v or more",
			lease.ErrUnsafeTiming, t.Interval, t.Timeout, i, max(3*i, time.Duration(whole(t.Timeout))*time.Second))
	}
	return nil
}
