package sabledb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

const (
	// settle is how long the place of a replica stands still before it counts as all that was sent.
	settle = 300 * time.Millisecond
	// placePoll is the pause between two looks at it, while writes are refused.
	placePoll = 2 * time.Millisecond
)

// place is what changes.seq says: where a replica is in its primary's numbers.
type place struct {
	txn     int64
	written time.Time
}

// readPlace reads changes.seq of the agent's own node.
func (n *Node) readPlace() (place, error) {
	folder := ""
	if n.address == n.of.cfg.Node && n.of.cfg.Folder != nil {
		folder = n.of.cfg.Folder()
	}
	if folder == "" {
		return place{}, errors.New("the database folder is not known; name it with --node-data")
	}
	file := filepath.Join(folder, "changes.seq")
	about, err := os.Stat(file)
	if err != nil {
		return place{}, fmt.Errorf("%w; name the database folder with --node-data", err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return place{}, err
	}
	txn, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return place{}, fmt.Errorf("%s: %.40q is not a number", file, text)
	}
	return place{txn, about.ModTime()}, nil
}

// size is how many bytes the database of the agent's own node has, 0 if that is not known.
func (n *Node) size() (total int64) {
	if n.address != n.of.cfg.Node || n.of.cfg.Folder == nil || n.of.cfg.Folder() == "" {
		return 0
	}
	_ = filepath.WalkDir(n.of.cfg.Folder(), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // RocksDB deletes files all the time
		}
		if about, err := d.Info(); err == nil {
			total += about.Size()
		}
		return nil
	})
	return total
}

// isCopied reports whether changes.seq was written since the node was led to its primary: until then it is about the
// one before.
func (m *memory) isCopied(p place) bool { return m.led.IsZero() || p != m.before }

// CatchUp implements [shard.CatchUpper].
func (n *Node) CatchUp(ctx context.Context, txn int64) error {
	last, moved := place{txn: -1}, time.Now()
	for {
		p, err := n.readPlace()
		switch {
		case err != nil && time.Since(moved) >= settle: // it may just be written
			return fmt.Errorf("whether it has all that the primary has is not known: %w", err)
		case err == nil && p.txn >= txn:
			return n.caughtUp(ctx, p.txn)
		case err == nil && p != last:
			last, moved = p, time.Now()
		}
		if err == nil && time.Since(moved) >= settle {
			break
		}
		if !pause(ctx) {
			return fmt.Errorf("it is at %d, and must reach %d", p.txn, txn)
		}
	}
	return n.copyAll(ctx, last.txn, txn)
}

// copyAll takes a full copy of a closed primary, which is exact.
func (n *Node) copyAll(ctx context.Context, at, txn int64) error {
	m := n.memory
	m.mu.Lock()
	address, took := m.follows, m.took
	m.mu.Unlock()
	short := fmt.Sprintf("it stays at %d, and must reach %d (a write that changes nothing may be the difference)", at, txn)
	if by, ok := ctx.Deadline(); address == "" || ok && took*3/2 > time.Until(by) {
		return fmt.Errorf("%s; a full copy took %v last time, longer than the switchover may go on: raise its --timeout", short, took.Round(time.Millisecond))
	}
	m.mu.Lock()
	err := n.lead(ctx, address)
	m.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s; a full copy: %w", short, err)
	}
	for {
		p, err := n.readPlace()
		m.mu.Lock()
		whole := err == nil && m.isCopied(p) && p.txn >= txn
		m.mu.Unlock()
		if whole {
			return n.caughtUp(ctx, p.txn)
		}
		if !pause(ctx) {
			return fmt.Errorf("%s; a full copy did not end in time: raise the switchover's --timeout", short)
		}
	}
}

// caughtUp records that the replica has all that its primary has, although that lists nobody any more.
func (n *Node) caughtUp(ctx context.Context, txn int64) error {
	in, err := n.info(ctx, n.act)
	if err != nil {
		return err
	}
	if in.role != shard.Replica || in.primary == "" {
		return errors.New("it is not a replica any more")
	}
	n.memory.mu.Lock()
	defer n.memory.mu.Unlock()
	n.memory.hear(in.primary, txn, time.Now())
	return nil
}

func pause(ctx context.Context) bool {
	t := time.NewTimer(placePoll)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
