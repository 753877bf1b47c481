package sabledb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/history"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/sabledb"
)

// fill writes n events of part "other" between one of part "p" and another, without a call for each.
func (s server) fill(t *testing.T, st *sabledb.Store, n int) {
	t.Helper()
	if err := st.Append(t.Context(), history.Event{Part: "p", Subject: "first"}); err != nil {
		t.Fatal(err)
	}
	events, state := "{"+s.prefix+"}:events", "{"+s.prefix+"}:state"
	text := s.send(t, []string{"GET", state})[0].Text
	more := strings.Replace(text, `"last_id":1`, fmt.Sprintf(`"last_id":%d`, n+1), 1)
	if more == text {
		t.Fatalf("%s does not say that there is one event", text)
	}
	s.send(t, append([]string{"RPUSH", events}, slices.Repeat([]string{`{"part":"other","subject":"x"}`}, n)...), []string{"SET", state, more})
	if err := st.Append(t.Context(), history.Event{Part: "p", Subject: "last"}); err != nil {
		t.Fatal(err)
	}
}

// A read that goes through the whole history has the lock for one page at a time, and what is cut off meanwhile does not confuse it.
func TestReadsLetOthersIn(t *testing.T) {
	s := standIn(t)
	st, other := s.open(t), s.open(t)
	s.fill(t, st, 2*history.MaxRead+100)
	for _, newest := range []bool{false, true} {
		var mu sync.Mutex
		var order []string
		cut := !newest // the oldest, before the second page; once
		s.Before(func(args []string) {
			if args[0] != "LOCK" && args[0] != "LRANGE" {
				return
			}
			mu.Lock()
			now := cut && args[0] == "LOCK" && slices.Contains(order, "LRANGE")
			cut = cut && !now
			order = append(order, args[0])
			mu.Unlock()
			if now {
				if _, err := other.Trim(t.Context(), history.MaxRead+50); err != nil {
					t.Error(err)
				}
			}
		})
		all, err := st.Read(t.Context(), history.Query{Part: "p", Newest: newest})
		s.Before(nil)
		if newest {
			all = append([]history.Event{{ID: 1, Subject: "first"}}, all...) // has been cut off
		}
		if last := int64(2*history.MaxRead + 102); err != nil || len(all) != 2 || all[0].ID != 1 || all[1].ID != last || all[1].Subject != "last" {
			t.Errorf("newest %v: %+v, %v", newest, all, err)
		}
		mu.Lock()
		if text := strings.Join(order, " "); strings.Contains(text, "LRANGE LRANGE") {
			t.Errorf("newest %v: %s: two pages under one lock", newest, text)
		}
		mu.Unlock()
	}
}

// However many callers read the history, one page at a time competes for the lock.
func TestReadsTakeTurns(t *testing.T) {
	s := standIn(t)
	st := s.open(t)
	s.fill(t, st, 1)
	reading, goOn := make(chan struct{}), make(chan struct{})
	s.Before(func(args []string) {
		if args[0] == "LRANGE" {
			close(reading)
			<-goOn
		}
	})
	first := make(chan error, 1)
	go func() {
		_, err := st.Read(t.Context(), history.Query{})
		first <- err
	}()
	<-reading
	locks := s.Served()["LOCK"]
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := st.Read(ctx, history.Query{}); !errors.Is(err, lease.ErrUnavailable) {
		t.Errorf("a read that gets no turn: %v, want ErrUnavailable", err)
	}
	if now := s.Served()["LOCK"]; now != locks {
		t.Errorf("it asked for the lock, while another one reads")
	}
	close(goOn)
	if err := <-first; err != nil {
		t.Error(err)
	}
}
