package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/api/client"
	"github.com/understudy-ha/understudy/internal/backoff"
)

// status is all that status shows.
type status struct {
	Needs     []apitype.Need        `json:"needs"` // what an operator has to look at
	MoreNeeds int64                 `json:"more_needs"`
	Errors    []string              `json:"errors,omitempty"` // what could not be read
	Held      []apitype.Held        `json:"held"`
	Store     apitype.StoreInfo     `json:"store"`
	Server    *apitype.ServerInfo   `json:"server,omitempty"`
	Roles     []apitype.Role        `json:"roles"`
	Shards    []apitype.Shard       `json:"shards"`
	Queues    []apitype.Queue       `json:"queues"`
	Monitor   *apitype.Monitor      `json:"monitor,omitempty"`
	Cache     *apitype.CacheCluster `json:"cache,omitempty"`
	Instances []apitype.Session     `json:"instances"`
	History   []apitype.Event       `json:"history"`
}

// shownEvents is how many of the latest events status asks for.
const shownEvents = 10

// statusTimeout bounds the reads of one status together.
const statusTimeout = 2 * callTimeout

// readStatus reads all of it over the API. A part that the store does not keep, or the server does not
// run, is left out.
func readStatus(ctx context.Context, c *client.Client) (s status, err error) {
	ask := func(optional bool, f func() error) {
		if err != nil {
			return
		}
		if err = f(); optional && missing(err) {
			err = nil
		}
	}
	var server apitype.State
	var overview apitype.Overview
	ask(false, func() (err error) { s.Roles, err = c.Roles(ctx); return err })
	ask(false, func() (err error) { server, err = c.State(ctx); return err })
	ask(false, func() (err error) { s.Instances, err = c.Sessions(ctx); return err })
	ask(false, func() (err error) { s.History, err = c.History(ctx, client.Query{Limit: shownEvents}); return err })
	ask(true, func() (err error) { s.Shards, err = allShards(ctx, c); return err })
	ask(true, func() (err error) { s.Queues, err = c.Queues(ctx); return err })
	ask(true, func() error {
		m, err := c.Monitor(ctx)
		if err == nil && len(m.Checks)+len(m.Members) > 0 {
			s.Monitor = &m
		}
		return err
	})
	ask(true, func() error {
		peers, err := c.CachePeers(ctx)
		if err == nil {
			s.Cache = &peers
		}
		return err
	})
	ask(false, func() (err error) { overview, err = c.Overview(ctx); return err })
	if err != nil {
		return s, apiError(err)
	}
	s.Store, s.Server = server.Store, &server.Server
	s.Needs, s.MoreNeeds, s.Held, s.Errors = overview.Needs, overview.MoreNeeds, overview.Held, overview.Errors
	s.Roles, s.Shards, s.Queues = orEmpty(s.Roles), orEmpty(s.Shards), orEmpty(s.Queues)
	s.Instances, s.History, s.Needs, s.Held = orEmpty(s.Instances), orEmpty(s.History), orEmpty(s.Needs), orEmpty(s.Held)
	return s, nil
}

// missing: the store keeps no such thing, or the server runs none.
func missing(err error) bool {
	answer, ok := errors.AsType[*client.Error](err)
	return ok && answer.Status == http.StatusNotFound && answer.Code != client.NotUnderstudy
}

// allShards lists them.
func allShards(ctx context.Context, c *client.Client) (out []apitype.Shard, err error) {
	const page = 500
	for after := ""; ; after = out[len(out)-1].Name {
		some, err := shardsAfter(ctx, c, client.ShardQuery{After: after, Limit: page})
		if err != nil {
			return nil, err
		}
		if out = append(out, some...); len(some) < page {
			return out, nil
		}
	}
}

// shardsAfter waits for a server that has not read the shards yet, which takes moments.
func shardsAfter(ctx context.Context, c *client.Client, q client.ShardQuery) ([]apitype.Shard, error) {
	for {
		shards, err := c.Shards(ctx, q)
		if answer, ok := errors.AsType[*client.Error](err); !ok || answer.Code != "not_ready" {
			return shards.Shards, err
		}
		if !backoff.Sleep(ctx, 20*time.Millisecond) {
			return nil, fmt.Errorf("the shards were not read yet: %w", context.Cause(ctx))
		}
	}
}
