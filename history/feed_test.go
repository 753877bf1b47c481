package history_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/history"
)

// log is a history whose events become visible when the test says so.
type log struct {
	events  []history.Event
	failing int // of reads, counted down; the one that reaches 0 fails
	reads   int
}

var errDown = errors.New("down")

func (l *log) Read(_ context.Context, q history.Query) (out []history.Event, err error) {
	if l.reads++; l.failing > 0 {
		if l.failing--; l.failing == 0 {
			return nil, errDown
		}
	}
	for _, e := range l.events {
		if e.ID > q.After && (q.Before == 0 || e.ID < q.Before) {
			out = append(out, e)
		}
	}
	if extra := len(out) - q.PageSize(); extra > 0 && q.Newest {
		return out[extra:], nil
	}
	return out[:min(len(out), q.PageSize())], nil
}

func (l *log) Append(context.Context, history.Event) error { return nil }
func (l *log) Trim(context.Context, int) (int64, error)    { return 0, nil }

// show makes events visible, in the order of their ids.
func (l *log) show(ids ...int64) {
	for _, id := range ids {
		at := 0
		for at < len(l.events) && l.events[at].ID < id {
			at++
		}
		part := "role"
		if id%10 == 0 {
			part = "shard"
		}
		e := history.Event{ID: id, At: time.Now(), Part: part, Subject: "s"}
		l.events = append(l.events[:at], append([]history.Event{e}, l.events[at:]...)...)
	}
}

func next(t *testing.T, f *history.Feed, want ...int64) {
	t.Helper()
	es, err := f.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []int64
	for _, e := range es {
		got = append(got, e.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Next (-want +got):\n%s", diff)
	}
}

func TestFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &log{}
		l.show(1, 2, 3, 4)
		f := history.NewFeed(l, 2)
		next(t, f, 3, 4)
		next(t, f)
		l.show(5, 8)
		next(t, f, 5, 8)
		l.show(7, 9) // 7 becomes visible after 8
		next(t, f, 7, 9)
		l.show(6)
		next(t, f, 6)
		next(t, f)
	})
}

func TestFeedGivesUpAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &log{}
		l.show(1, 3)
		f := history.NewFeed(l, 0)
		next(t, f, 1, 3)
		time.Sleep(29 * time.Second)
		l.show(4)
		next(t, f, 4)
		time.Sleep(2 * time.Second)
		next(t, f)
		l.show(2) // later than any statement may take
		next(t, f)
	})
}

func TestFeedOfALongLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &log{}
		var want []int64
		for id := range int64(2*history.MaxRead + 5) {
			l.events = append(l.events, history.Event{ID: id + 1})
			want = append(want, id+1)
		}
		f := history.NewFeed(l, 0)
		next(t, f, want...)
		l.show(1_000_000) // far ahead: no ten thousand gaps
		next(t, f, 1_000_000)
		l.reads = 0
		next(t, f)
		if l.reads != 1 {
			t.Errorf("%d reads when nothing is new", l.reads)
		}
	})
}

// TestFeedOfALogThatWasSetBack: a copy that lacks the latest events takes the log's place, and gives their ids again.
func TestFeedOfALogThatWasSetBack(t *testing.T) {
	for name, c := range map[string]struct {
		kept       int // of ten events; the feed has seen all, the copy has the first of them
		again      []int64
		want, then []int64
	}{
		"some ids":          {7, []int64{8, 9}, []int64{8, 9}, []int64{10, 11}},
		"all, and more":     {7, []int64{8, 9, 10, 11}, []int64{8, 9, 10, 11}, []int64{12}},
		"the last id":       {9, []int64{10}, []int64{10}, []int64{11}},
		"none yet":          {7, nil, nil, []int64{8}},
		"it is empty":       {0, nil, nil, []int64{1, 2}},
		"it was made again": {0, []int64{1, 2}, []int64{1, 2}, []int64{3}},
	} {
		for _, pause := range []time.Duration{time.Second, time.Hour} {
			t.Run(name+" after "+pause.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := &log{}
					f := history.NewFeed(l, 0)
					for id := range int64(10) {
						time.Sleep(pause)
						l.show(id + 1)
						next(t, f, id+1)
					}
					time.Sleep(pause)
					l.events = l.events[:c.kept]
					l.show(c.again...)
					next(t, f, c.want...)
					next(t, f)
					l.show(c.then...)
					next(t, f, c.then...)
					next(t, f)
				})
			})
		}
	}
}

// TestFeedThatHasReadNothing: what was before a feed began is not new, though the log was set back before its first reading.
func TestFeedThatHasReadNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &log{}
		for id := range int64(10) {
			time.Sleep(time.Hour)
			l.show(id + 1)
		}
		time.Sleep(time.Hour)
		f := history.NewFeed(l, 10)
		l.events = l.events[:9]
		next(t, f)
		l.show(10)
		next(t, f, 10)
	})
}

// TestFeedOfALogThatWasTrimmed: what follows the last event is new, and nothing else, however much was trimmed.
func TestFeedOfALogThatWasTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &log{}
		l.show(1, 2, 3)
		f := history.NewFeed(l, 0)
		next(t, f, 1, 2, 3)
		l.show(4, 5, 6)
		l.events = l.events[4:]
		next(t, f, 5, 6)
		l.show(7)
		next(t, f, 7)
	})
}

// What was read before a read failed is not lost.
func TestFeedWhoseReadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &log{failing: 2}
		var first, rest []int64
		for id := range int64(history.MaxRead + 3) {
			l.events = append(l.events, history.Event{ID: id + 1})
			if id < history.MaxRead {
				first = append(first, id+1)
			} else {
				rest = append(rest, id+1)
			}
		}
		f := history.NewFeed(l, 0)
		next(t, f, first...)
		next(t, f, rest...)
		l.failing = 1
		if _, err := f.Next(t.Context()); !errors.Is(err, errDown) {
			t.Errorf("Next of a log that cannot be read: %v", err)
		}
		next(t, f)
	})
}
