package redis

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

var _ store.Store = (*Store)(nil)

const (
	// dialTimeout bounds a connection attempt, the question to the Sentinels
	// included.
	dialTimeout = 3 * time.Second
	// callTimeout bounds a call whose context has no earlier deadline.
	callTimeout = 5 * time.Second
	// heartLines and restLines are the most connections for sessions and for
	// everything else.
	heartLines, restLines = 4, 12
	// defaultKeepEvents is about 30 MiB of history.
	defaultKeepEvents = 100_000
)

// Config says where the store is.
type Config struct {
	// URL of the server. Required.
	//
	//	redis://[USER:PASSWORD@]HOST[:6379][/DB]
	//	rediss://…    the same over TLS
	//	redis+sentinel://[USER:PASSWORD@]HOST[:26379],HOST2[:26379]/MASTER[/DB]
	//	rediss+sentinel://…
	//
	// Options follow as ?NAME=VALUE&…: prefix; with TLS cacert, cert and key (files in PEM form) and servername; with Sentinels sentinel_username and
	// sentinel_password, which are for the Sentinels as USER and PASSWORD are for
	// the servers.
	URL string
	// Prefix of every key. Default: that of the URL, or "understudy".
	Prefix string
	// KeepEvents is how many events the history keeps, give or take a few.
	// Default 100,000.
	KeepEvents int
	// NoMigrate leaves the schema as it is: only Inspect and Migrate are sure to
	// work.
	NoMigrate bool
	// Logger; nil is silent.
	Logger *slog.Logger
}

// Store is a store in Redis or Valkey. It is safe to use from many goroutines.
type Store struct {
	target  *target
	keep    int
	root    string // "{prefix}:", with which every key begins
	channel string
	log     *slog.Logger
	scripts scripts
	dialer  *dialer
	// heart carries sessions and nothing else, so that no renewal waits for a
	// connection while other calls hang.
	heart, rest *pool
	// waits carries calls that wait at the server for a command.
	waits *pool
	// skew is added to the server's clock; tests replace it.
	skew func() time.Duration
}

// Open connects to the server and brings the schema up to date. It returns
// lease.ErrInvalid for a URL that cannot be used, lease.ErrUnavailable for a
// server that does not answer or cannot be used, and store.ErrSchema. The store is a *[Store].
func Open(ctx context.Context, cfg Config) (store.Store, error) {
	t, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	t.prefix = cmp.Or(cfg.Prefix, t.prefix)
	if !validPrefix.MatchString(t.prefix) {
		return nil, fmt.Errorf("%w: prefix %q: use 1 to 100 of A–Z, a–z, 0–9 and ._:/-", lease.ErrInvalid, t.prefix)
	}
	scripts, err := loadScripts()
	if err != nil {
		return nil, err
	}
	s := &Store{
		target: t, keep: cfg.KeepEvents, root: "{" + t.prefix + "}:", log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)), scripts: scripts,
		skew: func() time.Duration { return 0 },
	}
	// Channels are not those of a database: its number makes them so.
	s.channel = fmt.Sprintf("%schanges:%d", s.root, t.db)
	if s.keep <= 0 {
		s.keep = defaultKeepEvents
	}
	s.dialer = &dialer{target: t, log: s.log}
	s.heart, s.rest, s.waits = s.newPool(heartLines), s.newPool(restLines), s.newPool(waitLines)
	if err := s.check(ctx, cfg.NoMigrate); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) check(ctx context.Context, noMigrate bool) error {
	server, err := s.server(ctx)
	if err != nil {
		return fmt.Errorf("opening %s: %w", s.target.location, err)
	}
	if err := server.supported(); err != nil {
		return fmt.Errorf("opening %s: %w", s.target.location, err)
	}
	if noMigrate {
		return nil
	}
	_, _, err = s.Migrate(ctx)
	return err
}

// Close implements [store.Admin].
func (s *Store) Close() error {
	s.heart.close()
	s.rest.close()
	s.waits.close()
	return nil
}
