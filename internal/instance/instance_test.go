package instance_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/outagelog"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/memory"
)

// lines is a log that calls a function with each line.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	each func(line string)
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(b)
	l.each(string(b))
	return len(b), nil
}

// An outage that ended before the store was first opened is over in the log, too: a later one is not counted from there.
func TestOutageAtStartEndsInTheLog(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close() // nobody listens there
	host := &instance.Host{}
	host.StoreURL = "redis://" + address
	log := &lines{each: func(line string) {
		if strings.Contains(line, "does not answer") {
			host.StoreURL = "sqlite:" + dir + "/store.db"
		}
	}}
	host.Log = slog.New(outagelog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	st, err := host.Open(ctx, instance.Opening{Patient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if text := log.text.String(); strings.Count(text, "does not answer") != 1 || strings.Count(text, lease.StoreAnswers) != 1 {
		t.Errorf("the log says:\n%s", text)
	}
}

// damagedLater is a store that is found damaged after a while.
type damagedLater struct {
	*memory.Store
	damaged atomic.Bool
}

func (s *damagedLater) RenewSession(ctx context.Context, id string) (lease.Renewal, error) {
	if s.damaged.Load() {
		return lease.Renewal{}, lease.ErrDamaged
	}
	return s.Store.RenewSession(ctx, id)
}

// Whoever loses a role because its keeper cannot continue is told why, also when the work takes a moment to stop.
func TestStoreDamagedWhilePrimary(t *testing.T) {
	for name, campaign := range map[string]func(context.Context, elect.Config, elect.Work) error{"run": elect.Run, "campaign": elect.Campaign} {
		t.Run(name, func(t *testing.T) {
			host := &instance.Host{Log: slog.New(slog.DiscardHandler)}
			st := &damagedLater{Store: memory.New(nil)}
			who := instance.Identity{Name: "a", Timing: lease.Timing{Interval: 50 * time.Millisecond, Timeout: time.Minute}}
			err := host.WithKeeper(t.Context(), st, who, func(ctx context.Context, k *lease.Keeper) error {
				return campaign(ctx, elect.Config{Keeper: k, Role: "r"}, func(ctx context.Context, _ elect.Term) error {
					st.damaged.Store(true)
					<-ctx.Done()
					<-time.After(50 * time.Millisecond)
					return lease.ErrLost // as a program does
				})
			})
			if !errors.Is(err, lease.ErrDamaged) || errors.Is(err, lease.ErrLost) {
				t.Errorf("it ended with %v, want why the role was lost", err)
			}
		})
	}
}
