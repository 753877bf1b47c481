package redis

import (
	"context"
	"embed"
	"errors"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var sources embed.FS

// scripts are the operations by name.
type scripts map[string]*redis.Script

// bare scripts do without rows.lua, for speed.
func bare(name string) bool {
	return name == "session_renew" || name == "migrate" || name == "history_trim"
}

func loadScripts() (scripts, error) {
	clock, err := fs.ReadFile(sources, "scripts/clock.lua")
	if err != nil {
		return nil, err
	}
	rows, err := fs.ReadFile(sources, "scripts/rows.lua")
	if err != nil {
		return nil, err
	}
	shards, err := fs.ReadFile(sources, "scripts/shard_rows.lua")
	if err != nil {
		return nil, err
	}
	files, err := fs.Glob(sources, "scripts/*.lua")
	if err != nil {
		return nil, err
	}
	all := scripts{}
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".lua")
		if name == "clock" || name == "rows" || name == "shard_rows" {
			continue
		}
		body, err := fs.ReadFile(sources, file)
		if err != nil {
			return nil, err
		}
		source := string(clock)
		if !bare(name) {
			source += string(rows)
		}
		if strings.HasPrefix(name, "shard_") {
			source += string(shards)
		}
		all[name] = redis.NewScript(source + string(body))
	}
	return all, nil
}

// mark is the first argument of every script, the clock's offset. The driver
// asks for its bytes while it writes the request, and so it knows whether the
// request can have reached the server.
type mark struct {
	text string
	sent bool
}

// MarshalBinary is called by the driver, in the goroutine of the call.
func (m *mark) MarshalBinary() ([]byte, error) {
	m.sent = true
	return []byte(m.text), nil
}

// effect tells whether a call changes something.
type effect bool

const (
	reads  effect = false
	writes effect = true
)

// run calls a script once.
func (s *Store) run(ctx context.Context, p *lines, e effect, name string, keys []string, args ...any) (value any, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	m := &mark{text: strconv.FormatInt(s.skew().Microseconds(), 10)}
	args = append([]any{m}, args...)
	err = p.use(ctx, func(c *redis.Client) error {
		value, err = s.scripts[name].EvalSha(ctx, c, keys, args...).Result()
		if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			// The server does not know it yet, or any more.
			m.sent = false
			value, err = s.scripts[name].Eval(ctx, c, keys, args...).Result()
		}
		return ignoreNil(err)
	})
	if err != nil {
		return nil, failure(err, m.sent && e == writes)
	}
	return value, nil
}

// do sends a command that changes nothing.
func (s *Store) do(ctx context.Context, args ...any) (value any, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	err = s.rest.use(ctx, func(c *redis.Client) error {
		value, err = c.Do(ctx, args...).Result()
		return ignoreNil(err)
	})
	if err != nil {
		return nil, failure(err, false)
	}
	return value, nil
}

// bounded makes sure of a deadline.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < callTimeout {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, callTimeout)
}

func ignoreNil(err error) error {
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}
