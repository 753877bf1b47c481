package sim

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/memstore/checks"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store/memory"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// monitorStore is where the instances of a monitor meet.
type monitorStore struct {
	monitor.Store
	sessions lease.Store
	claims   claim.KeyTable
	// news are the notices that were enqueued since it was asked last, in order of
	// each key.
	news  func() []monitor.Notification
	close func() error
}

func memoryMonitor(wall func() time.Time) monitorStore {
	sessions := memory.New(nil)
	ref := checks.NewMemory(checks.Options{Clock: wall, Sessions: sessions})
	read := 0
	return monitorStore{
		Store: monitor.Validated(ref), sessions: sessions, claims: sessions.Claims(), close: func() error { return nil },
		news: func() []monitor.Notification {
			sent := ref.Sent()[read:]
			read += len(sent)
			return sent
		},
	}
}

func sqliteMonitor(path string, wall func() time.Time) (monitorStore, error) {
	s, err := sqlite.Open(context.Background(), sqlite.Config{Path: path, Clock: &leasetest.BubbleClock{}, BootID: "sim", Wall: wall, PollInterval: 200 * time.Millisecond})
	if err != nil {
		return monitorStore{}, err
	}
	seen := map[string]bool{}
	return monitorStore{
		Store: s.Monitor(), sessions: s, claims: s.Claims(), close: s.Close,
		news: func() (out []monitor.Notification) {
			for _, sink := range monitorSinks {
				out = append(out, unread(s.QueueAdmin(), sink, seen)...)
			}
			return out
		},
	}, nil
}

// unread are the batches of a sink's queue that were not seen.
func unread(d dispatch.Admin, sink string, seen map[string]bool) (out []monitor.Notification) {
	ctx := context.Background()
	q := dispatch.MessageQuery{Queue: monitor.SinkQueue(sink)}
	for {
		page, err := d.Messages(ctx, q)
		if err != nil {
			return out // the queue is made with the first instance
		}
		for _, r := range page {
			q.AfterKey, q.AfterSeq = r.Key, r.Seq
			if seen[sink+r.ID] {
				continue
			}
			seen[sink+r.ID] = true
			if whole, err := d.Message(ctx, r.Queue, r.ID); err == nil {
				out = append(out, monitor.Notification{Sink: sink, Key: r.Key, ID: r.ID, Payload: whole.Payload})
			}
		}
		if len(page) < dispatch.MaxPage {
			return out
		}
	}
}
