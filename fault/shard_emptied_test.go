//go:build linux

package fault_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/fault"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
)

// emptiedStore: the deposed primary has no followers to wait for, and must not make the shard again before the one
// that deposed it has reported.
func emptiedStore(t *testing.T, s *fault.Shard, load *fault.ShardLoad) {
	p := s.Primary()
	realserver.Eventually(t, time.Minute, "the primary is armed", func() error {
		if !p.Record().Armed {
			return errors.New("it is not")
		}
		return nil
	})
	p.SignalNode(syscall.SIGSTOP)
	stopped := now()
	p.SignalAgent(syscall.SIGSTOP)
	q := s.Moved(p)
	const writes = 200
	realserver.Eventually(t, time.Minute, "the new primary has them all", func() error {
		for i := range writes {
			if _, err := q.Do("SET", fmt.Sprintf("kept:%d", i), "1"); err != nil {
				return err
			}
		}
		return nil
	})
	if _, err := fault.AskRedis(s.Database.Addr, "FLUSHALL"); err != nil {
		t.Fatal(err)
	}
	p.SignalNode(syscall.SIGCONT)
	continued := now()
	p.SignalAgent(syscall.SIGCONT)
	load.Hung(p, stopped)
	realserver.Eventually(t, time.Minute, "the shard is made again", func() error {
		v, err := s.Look()
		if err == nil && v.Row.Primary == "" {
			err = fmt.Errorf("nobody has")
		}
		return err
	})
	s.Pass(2 * s.Timing.Timeout)
	lost := 0
	for i := range writes {
		if got := q.Must("GET", fmt.Sprintf("kept:%d", i)); got != "1" {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d writes of the later primary are lost on it", lost, writes)
	}
	// What the deposed one had alone is an operator's to give up.
	p.Options = append(p.Options, "--discard-data")
	p.KillAgent()
	p.Start()
	got := s.Settled()
	if got != q {
		t.Errorf("%s leads, and not %s", got.Name, q.Name)
	}
	// Nobody could kill the node while it hung: what waited on its open connections may be accepted as it goes on.
	evidence := load.Stop(got)
	evidence.Excused = func(w fault.ShardWrite, _ time.Duration) bool { return w.Node == p.Addr && w.Sent < continued }
	judgedEvidence(t, evidence)
}
