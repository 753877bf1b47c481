package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/instance"
	"github.com/understudy-ha/understudy/internal/settings"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store/memory"
)

// awayOnce is a store that does not record the first refusal.
type awayOnce struct {
	monitor.Store
	refusals int
}

func (s *awayOnce) RejectConfiguration(ctx context.Context, origin, reason string) error {
	if s.refusals++; s.refusals == 1 {
		return lease.ErrUnavailable
	}
	return s.Store.RejectConfiguration(ctx, origin, reason)
}

// TestRefusalIsRecordedAgain: the overview has the refusal of a configuration for as long as it is refused, whoever applies
// another one meanwhile; the log has it once.
func TestRefusalIsRecordedAgain(t *testing.T) {
	var log bytes.Buffer
	table := &awayOnce{Store: memory.New(nil).Monitor()}
	p := &activePart{mon: &servedMonitor{host: &instance.Host{Log: slog.New(slog.NewTextHandler(&log, nil))}, cfg: &settings.Monitor{}, table: table, origin: "file"}}
	refused := func(want string) {
		t.Helper()
		if o, err := table.Overview(t.Context()); err != nil || o.Error != want {
			t.Errorf("the overview has %q, want %q (%v)", o.Error, want, err)
		}
	}
	p.refuse(t.Context(), errors.New("bad"))
	refused("")
	p.refuse(t.Context(), errors.New("bad"))
	refused("file: bad")
	if _, err := table.Configure(t.Context(), monitor.Configuration{Keep: true, Checks: []monitor.Check{{Name: "e", Interval: time.Minute}}}); err != nil {
		t.Fatal(err)
	}
	refused("")
	p.refuse(t.Context(), errors.New("bad"))
	refused("file: bad")
	if n := strings.Count(log.String(), "not applied"); n != 1 {
		t.Errorf("logged %d times: %s", n, log.String())
	}
}
