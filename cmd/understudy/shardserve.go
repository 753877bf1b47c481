package main

import (
	"context"
	"net"

	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/sentinel"
	"github.com/understudy-ha/understudy/store"
)

// sentinelConfig is the endpoint of a server for Sentinel clients.
type sentinelConfig struct {
	// Listen is its address, HOST:PORT.
	Listen string `yaml:"listen"`
	// PasswordFile holds what clients must give. Default: nothing.
	PasswordFile string `yaml:"password_file"`

	password string
	listener net.Listener
}

func (s *sentinelConfig) complete() (err error) {
	if s.Listen == "" {
		return usagef("listen is missing; use HOST:PORT, as in 127.0.0.1:26379")
	}
	if _, _, err := net.SplitHostPort(s.Listen); err != nil {
		return usagef("listen %q: use HOST:PORT", s.Listen)
	}
	s.password, err = readPassword("password_file", s.PasswordFile)
	return err
}

// open listens. There is nothing to open without a configuration.
func (s *sentinelConfig) open() (err error) {
	if s == nil {
		return nil
	}
	s.listener, err = listenOn("sentinel", s.Listen)
	return err
}

func (s *sentinelConfig) close() {
	if s != nil && s.listener != nil {
		_ = s.listener.Close()
	}
}

// where it listens, for the log; "" is nowhere.
func (s *sentinelConfig) where() string {
	if s == nil || s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// servedShards is what a server knows of shards, and who is told.
type servedShards struct {
	dir      *shard.Directory
	guide    *sentinel.Server // nil without one
	listener net.Listener
}

// serveShards makes it. Nothing runs yet. A store that keeps no shards gives nil.
func (a *app) serveShards(cfg *serveConfig, st store.Store) (*servedShards, error) {
	shards, err := shardsOf(st)
	if err != nil {
		if cfg.Sentinel == nil {
			return nil, nil
		}
		return nil, err
	}
	out := &servedShards{}
	if out.dir, err = shard.NewDirectory(shard.DirectoryConfig{Registry: shards.Registry(), Logger: a.log}); err != nil {
		return nil, err
	}
	if c := cfg.Sentinel; c != nil {
		out.listener = c.listener
		if out.guide, err = sentinel.New(sentinel.Config{Where: out.dir, Password: c.password, Logger: a.log}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *servedShards) start(part func(string, func(context.Context) error)) {
	if s == nil {
		return
	}
	part("shards", s.dir.Run)
	if s.guide != nil {
		part("sentinel", func(ctx context.Context) error { return s.guide.Serve(ctx, s.listener) })
	}
}
