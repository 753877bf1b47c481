package elect_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store/memory"
)

// TestStandbySaysWhoIsPrimary: at the start, and once a minute.
func TestStandbySaysWhoIsPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(nil)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{}, 4)
		campaign := func(name string, log *slog.Logger) {
			k, err := lease.NewKeeper(lease.KeeperConfig{Store: st, Instance: lease.NewInstance(name, ""), Clock: &leasetest.BubbleClock{}})
			if err != nil {
				t.Fatal(err)
			}
			go func() { _ = k.Run(ctx); ended <- struct{}{} }()
			go func() {
				_ = elect.Campaign(ctx, elect.Config{Keeper: k, Role: "billing", Logger: log}, func(ctx context.Context, _ elect.Term) error {
					<-ctx.Done()
					return nil
				})
				ended <- struct{}{}
			}()
		}
		var out bytes.Buffer
		campaign("web-1", nil)
		time.Sleep(time.Second)
		campaign("web-2", slog.New(slog.NewTextHandler(&out, nil)))
		time.Sleep(5*time.Minute + 2*time.Second)
		stop()
		for range 4 {
			<-ended
		}
		var said []string
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, "msg=standby ") {
				said = append(said, line)
			}
		}
		if len(said) != 6 || !strings.Contains(said[0], "role=billing name=web-2 primary=web-1 term=") {
			t.Errorf("in five minutes it says %q", said)
		}
	})
}
