package redis

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"
)

//go:embed scripts/*.lua
var sources embed.FS

// scripts are the operations by name.
type scripts map[string]script

// script is called by its digest, which is its identity: programs of two versions use one server side by side, each
// its own scripts.
type script struct{ source, digest string }

// bare scripts do without rows.lua, for speed.
func bare(name string) bool {
	return name == "session_renew" || name == "migrate" || name == "history_trim"
}

func loadScripts() (scripts, error) {
	files, err := fs.Glob(sources, "scripts/*.lua")
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for _, file := range files {
		text, err := fs.ReadFile(sources, file)
		if err != nil {
			return nil, err
		}
		texts[strings.TrimSuffix(path.Base(file), ".lua")] = string(text)
	}
	all := scripts{}
	for name, body := range texts {
		if name == "clock" || name == "rows" || name == "shard_rows" {
			continue
		}
		source := texts["clock"]
		if !bare(name) {
			source += texts["rows"]
		}
		if strings.HasPrefix(name, "shard_") {
			source += texts["shard_rows"]
		}
		source += body
		digest := sha1.Sum([]byte(source))
		all[name] = script{source, hex.EncodeToString(digest[:])}
	}
	return all, nil
}

// effect reports whether a call changes something.
type effect bool

const (
	reads  effect = false
	writes effect = true
)

// run calls a script once, and returns its answer.
func (s *Store) run(ctx context.Context, p *pool, e effect, name string, keys []string, args ...any) (*row, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	sent := false
	var value any
	err := p.use(ctx, func(c *connection) (err error) {
		value, err = s.scripts[name].call(c, &sent, keys, append([]any{s.skew().Microseconds()}, args...))
		return err
	})
	if err != nil {
		return nil, failure(err, sent && e == writes)
	}
	return rowOf(value), nil
}

// call has the server run the script; sent tells afterwards whether it can have.
func (s script) call(c *connection, sent *bool, keys []string, args []any) (any, error) {
	words := append([]string{strconv.Itoa(len(keys))}, keys...)
	for _, a := range args {
		words = append(words, argument(a))
	}
	*sent = true
	value, err := c.do(append([]string{"EVALSHA", s.digest}, words...)...)
	if r, ok := errors.AsType[refusal](err); ok && strings.HasPrefix(string(r), "NOSCRIPT") {
		// The server does not know the script yet, or any more, and so has done nothing.
		value, err = c.do(append([]string{"EVAL", s.source}, words...)...)
	}
	return value, err
}

// argument is a value as the server reads it.
func argument(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case bool:
		if v {
			return "1"
		}
		return "0"
	}
	return fmt.Sprint(v) // numbers
}

// do sends a command that changes nothing.
func (s *Store) do(ctx context.Context, args ...any) (value any, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = argument(a)
	}
	err = s.rest.use(ctx, func(c *connection) error {
		value, err = c.do(words...)
		return err
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
