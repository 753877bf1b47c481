package sim

import (
	"context"
	"time"

	"github.com/understudy-ha/understudy/claim"
	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/dispatch/dispatchtest"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/monitor/monitortest"
	"github.com/understudy-ha/understudy/store/memory"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// monitorStore is where the instances of a monitor meet.
type monitorStore struct {
	monitor.Table
	sessions lease.Store
	claims   claim.Table
	// news are the notices that were enqueued since it was asked last, in order of
	// each key.
	news  func() []monitor.Notice
	close func() error
}

func memoryMonitor(wall func() time.Time) monitorStore {
	sessions := memory.New(nil)
	claims := dispatchtest.NewMemory(sessions, time.Now)
	ref := monitortest.NewReference(monitortest.Options{Clock: wall, Sessions: sessions})
	read := 0
	return monitorStore{
		Table: ref, sessions: claims, claims: claims.Claims(), close: func() error { return nil },
		news: func() []monitor.Notice {
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
		Table: s.Monitor(), sessions: s, claims: s.Claims(), close: s.Close,
		news: func() (out []monitor.Notice) {
			for _, sink := range monitorSinks {
				out = append(out, unread(s.Desk(), sink, seen)...)
			}
			return out
		},
	}, nil
}

// unread are the batches of a sink's queue that were not seen.
func unread(d dispatch.Desk, sink string, seen map[string]bool) (out []monitor.Notice) {
	ctx := context.Background()
	q := dispatch.BatchQuery{Queue: monitor.QueueOf(sink)}
	for {
		page, err := d.Batches(ctx, q)
		if err != nil {
			return out // the queue is made with the first instance
		}
		for _, r := range page {
			q.AfterKey, q.AfterSeq = r.Key, r.Seq
			if seen[sink+r.ID] {
				continue
			}
			seen[sink+r.ID] = true
			if whole, err := d.Batch(ctx, r.Queue, r.ID); err == nil {
				out = append(out, monitor.Notice{Sink: sink, Key: r.Key, ID: r.ID, Payload: whole.Payload})
			}
		}
		if len(page) < dispatch.MaxPage {
			return out
		}
	}
}
