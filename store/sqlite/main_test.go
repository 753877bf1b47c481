package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/understudy-ha/understudy/dispatch"
	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// childEnv makes the test's own binary run one of the children below.
const childEnv = "UNDERSTUDY_SQLITE_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "":
		goleak.VerifyTestMain(m)
	case "open":
		childOpens()
	case "contend":
		childContends(os.Args[1])
	case "enqueue":
		childEnqueues(os.Args[1], os.Args[2])
	case "deliver":
		childDelivers(os.Args[1])
	case "monitor":
		childMonitors(os.Args[1], os.Args[2])
	}
}

func child(t testing.TB, what string, args ...string) *exec.Cmd {
	t.Helper()
	realserver.SkipIfShort(t, "other processes")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), childEnv+"="+what)
	return cmd
}

// childOpens opens each path it is told, takes part once, closes it, and answers.
func childOpens() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if err := takePart(lines.Text()); err != nil {
			fmt.Println("failed:", err)
			continue
		}
		fmt.Println("ok")
	}
}

func takePart(path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), ample)
	defer cancel()
	s, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return err
	}
	n := lease.Session{ID: lease.NewID(), Instance: lease.NewInstance("child", ""), Timing: patient}
	if _, err := s.StartSession(ctx, n); err != nil {
		return err
	}
	if _, err := s.RenewSession(ctx, n.ID); err != nil {
		return err
	}
	if err := s.QueueAdmin().CreateQueue(ctx, jobs); err != nil {
		return err
	}
	if _, err := s.QueueAdmin().Add(ctx, []dispatch.Message{{Queue: jobs, Key: "k"}}); err != nil {
		return err
	}
	return s.Close()
}

// The timing of children that are killed: of those that deliver, and of those that contend, whose
// transactions may take an interval.
var (
	quick = lease.Timing{Interval: 200 * time.Millisecond, Timeout: time.Second}
	brisk = lease.Timing{Interval: 600 * time.Millisecond, Timeout: 3 * time.Second}
)

// childContends waits for the lease role/r and, while it holds it, has effects
// under its term. It ends by being killed.
func childContends(path string) {
	if err := contend(context.Background(), path); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func contend(ctx context.Context, path string) error {
	s, err := sqlite.Open(ctx, sqlite.Config{Path: path})
	if err != nil {
		return err
	}
	k, err := lease.NewKeeper(lease.KeeperConfig{Store: s, Roster: s, Instance: lease.NewInstance(fmt.Sprint(os.Getpid()), ""), Timing: brisk})
	if err != nil {
		return err
	}
	go func() { _ = k.Run(ctx) }()
	for {
		held, err := k.Acquire(ctx, lease.AcquireRequest{Leases: []lease.ID{roleR}})
		if err != nil {
			return err
		}
		for err == nil {
			err = s.Guarded(ctx, held.ID, held.Term, func(tx *sql.Tx) error {
				_, err := tx.Exec("INSERT INTO effect (term, pid) VALUES (?, ?)", held.Term, os.Getpid())
				return err
			})
			<-time.After(5 * time.Millisecond)
		}
		fmt.Println("term", held.Term, "ends:", err)
		if err := held.Release(ctx, "", "failed"); err != nil {
			fmt.Println(err)
		}
	}
}
