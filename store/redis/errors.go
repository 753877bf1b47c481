package redis

import (
	"errors"
	"fmt"

	"github.com/understudy-ha/understudy/lease"
)

// refusals are the answers with which a server refuses a script before its first
// write, and what to do about them.
var refusals = []struct{ code, advice string }{
	{"READONLY", "the server is a read-only replica: name the master, or use redis+sentinel://"},
	{"LOADING", "the server is still loading its data"},
	{"MASTERDOWN", "the server is a replica that has lost its master: name the master, or use redis+sentinel://"},
	{"OOM", "the server has reached maxmemory: raise it, or free memory"},
	{"MISCONF", "the server cannot save to disk and refuses writes: look at its log and its disk"},
	{"NOREPLICAS", "too few replicas are connected (min-replicas-to-write)"},
	{"NOAUTH", "the server wants a password: redis://USER:PASSWORD@HOST"},
	{"WRONGPASS", "the user name or password is wrong"},
	{"NOPERM", "the user lacks a permission: allow EVAL, EVALSHA, SUBSCRIBE, PUBLISH, TIME and data commands on the prefix's keys and channel"},
	{"BUSY", "the server is busy with a script of another client: wait, or SCRIPT KILL"},
	{"CLUSTERDOWN", "the cluster is down"},
	{"MOVED", "the server is a node of a cluster that keeps these keys elsewhere: name that node, or use a server without cluster mode"},
	{"unsupported command", "the server is a SableDB: use sabledb://HOST:PORT"},
	{"ERR max number of clients", "the server has too many clients: raise maxclients"},
	{"ERR invalid password", "the password is wrong"},
	{"ERR Client sent AUTH, but no password is set", "the server has no password: leave it out of the URL"},
}

// failure turns an error of a connection's into one of the port's. applied tells
// whether the request may have been applied if no answer came.
func failure(err error, applied bool) error {
	if answer, ok := errors.AsType[refusal](err); ok {
		for _, r := range refusals {
			if answer.has(r.code) {
				return fmt.Errorf("%w: %s: %w", lease.ErrUnavailable, r.advice, err)
			}
		}
	}
	if applied {
		return fmt.Errorf("%w: %w", lease.ErrUnknown, err)
	}
	return fmt.Errorf("%w: %w", lease.ErrUnavailable, err)
}
