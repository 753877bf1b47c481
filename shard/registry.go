package shard

import (
	"context"
	"errors"
	"time"

	"github.com/understudy-ha/understudy/history"
)

var (
	// ErrNotFound: no such shard, or no such node in it.
	ErrNotFound = errors.New("shard: not found")
	// ErrChanged: the row is not the one that was read; read it again.
	ErrChanged = errors.New("shard: the row has changed")
	// ErrLocked: another agent holds the failover lock.
	ErrLocked = errors.New("shard: failover lock held by another")
	// ErrTaken: the node is registered otherwise: in another shard, or by another
	// agent that lives.
	ErrTaken = errors.New("shard: node registered otherwise")
	// ErrNoCommand: no command came while it was waited for.
	ErrNoCommand = errors.New("shard: no command")
	// ErrNoPrimary: the shard has no primary now.
	ErrNoPrimary = errors.New("shard: no primary")
)

// RowUpdate changes a shard's row.
type RowUpdate struct {
	// Row is what it becomes. Row.Rev is that of the row that was read: 0 makes a new
	// shard.
	Row Row
	// Remove deletes the row instead: of Row, only its name and Rev count. The shard is gone when Drop names all of its
	// nodes. The new Rev is 0.
	Remove bool
	// Commands are sent if the row is changed, and otherwise not.
	Commands []Command
	// Drop deletes the records and queues of these nodes.
	Drop []string
	// Event to be written with it, unless nil. ID and At are the store's to give.
	Event *history.Event
}

// Lock is a claim on the failover lock of a primary.
type Lock struct {
	Shard   string
	Primary string // node id
	// Value is what the lock's becomes. It is different at every renewal, so that everyone sees
	// on a clock of its own whether the holder continues.
	Value string
	// Instead is the value that it replaces: "" takes a free lock, one's own renews it, and
	// that of a holder that was silent for T takes it over.
	Instead string
}

// LockTime is how long a lock lives that is not renewed or deleted.
const LockTime = 60 * time.Second

// Registry keeps what is known and decided about shards. Its methods, and those of
// [Commands], return [lease.ErrUnavailable] when nothing can have been done,
// [lease.ErrUnknown] when it may have been, and [lease.ErrInvalid] for input that is
// not acceptable; they are safe to use from many goroutines, each is atomic, and ctx
// bounds the call. Any text is only data to a store.
type Registry interface {
	// Report writes a node's record, stamped with the store's clock, and returns the
	// view of its shard after it. urgent wakes those who watch: something happened that
	// others wait for. [ErrTaken] if the id or the address is registered in another
	// shard, the address by another node that lives, or the id by another instance
	// that lives; a record is alive for its timeout.
	Report(ctx context.Context, r Record, urgent bool) (View, error)

	// ReadView returns the view of a shard. [ErrNotFound] if there is neither a row nor a record.
	ReadView(ctx context.Context, shard string) (View, error)

	// UpdateRow changes the row if its Rev is still the one given, and then does the rest
	// of the update; the new Rev is greater. Those who watch are woken. [ErrChanged]
	// otherwise, and nothing is done.
	UpdateRow(ctx context.Context, u RowUpdate) (rev int64, err error)

	// Lock takes, renews or takes over the lock, if its value is l.Instead. It then lives
	// for LockTime. [ErrLocked] otherwise.
	Lock(ctx context.Context, l Lock) error
	// Unlock deletes the lock if its value is l.Instead; otherwise it does nothing.
	Unlock(ctx context.Context, l Lock) error

	// List returns the views of shards whose name is greater than after, in byte
	// order, at most limit (1 to MaxShards).
	List(ctx context.Context, after string, limit int) ([]View, error)

	// Watch calls wake with the name of a shard whenever its row, its lease or, with an
	// urgent report, a record of it has changed, from when it is ready until ctx ends.
	// shard, when not "", limits it to that one. Nothing else that the store keeps wakes
	// anyone. "" says that any may have changed: first, when it is ready, and later only
	// if changes may have been missed, or were too many to be named.
	// Delivery is best effort. It returns nil when ctx ended, and an error when it
	// broke; a store without notifications returns [errors.ErrUnsupported] at once.
	// wake must not block.
	Watch(ctx context.Context, shard string, wake func(shard string)) error
}

// Commands are the queues of the nodes: first in, first out.
type Commands interface {
	// Send appends commands to the queues of their nodes, all or none. One whose id
	// waits there already is not appended again. A queue that would be longer than MaxQueue loses its
	// oldest.
	Send(ctx context.Context, c ...Command) error
	// Next takes the oldest command of a node's queue out of it, waiting for one up
	// to wait, at most 5 s. What has expired is dropped unread. [ErrNoCommand] if none came.
	// A command whose answer is lost is lost: who sent it sends it again.
	Next(ctx context.Context, node string, wait time.Duration) (Command, error)
}
