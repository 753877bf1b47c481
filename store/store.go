package store

import (
	"github.com/understudy-ha/understudy/access"
	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/shard"
)

// Store is what every adapter offers.
type Store interface {
	lease.Store
	lease.Roster
	lease.StateStore
	history.Log
	Admin
}

// Queues is what stores also offer that can divide work: memory, SQLite and
// PostgreSQL.
type Queues interface {
	Claims() claim.KeyTable
	Queue() dispatch.Queue
	QueueAdmin() dispatch.Admin
}

// Monitors is what the same stores offer for package monitor.
type Monitors interface {
	Monitor() monitor.Store
}

// Jobs is what stores also offer for package job: memory, SQLite, PostgreSQL and Redis.
type Jobs interface {
	Jobs() job.Store
}

// Shards is what every store offers for package shard.
type Shards interface {
	Registry() shard.Registry
	Commands() shard.Commands
}

// Tokens is what every store offers for package access.
type Tokens interface {
	Tokens() access.Tokens
}
