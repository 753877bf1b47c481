package agent

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/understudy-ha/understudy/internal/flock"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
)

// folder is an agent's data folder: what it must not forget when it is started again.
type folder struct {
	dir  string
	lock *os.File
	boot string

	saved atomic.Pointer[shard.SavedState] // what is on the disk; reading it does not wait for the disk
	mu    sync.Mutex                       // held by who writes
}

// openFolder locks the folder and reads it, or makes it with a new node id.
func openFolder(dir, shardName, boot string, now time.Duration) (*folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("shard: making the data folder: %w", err)
	}
	lock, err := lockFolder(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	f := &folder{dir: dir, lock: lock, boot: boot}
	if err := f.load(shardName, now); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return f, nil
}

func (f *folder) load(shardName string, now time.Duration) error {
	var m shard.SavedState
	b, err := os.ReadFile(f.path())
	switch {
	case errors.Is(err, os.ErrNotExist):
		id := make([]byte, 20)
		_, _ = rand.Read(id)
		return f.write(shard.SavedState{NodeID: hex.EncodeToString(id), Shard: shardName, Boot: f.boot}, true)
	case err != nil:
		return fmt.Errorf("shard: reading the data folder: %w", err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return fmt.Errorf("%w: %s is damaged: %v; restore it; without it the node is a new one to its shard, which must not be done to the primary", lease.ErrInvalid, f.path(), err)
	}
	if err := shard.ValidateNodeID(m.NodeID); err != nil {
		return fmt.Errorf("%s: %w", f.path(), err)
	}
	if m.Shard != shardName {
		return fmt.Errorf("%w: the data folder %s is of a node of shard %q, not %q; use a folder for each node", lease.ErrInvalid, f.dir, m.Shard, shardName)
	}
	if m.Boot == f.boot && f.boot != "" {
		f.saved.Store(&m)
		return nil
	}
	// The clock is another one, and does not tell how much is left of what was promised.
	if m.Promised > 0 {
		m.Promised = now + shard.MaxPromise
	}
	m.Boot = f.boot
	return f.write(m, true)
}

func (f *folder) path() string { return filepath.Join(f.dir, "memory.json") }

// state returns what is saved.
func (f *folder) state() shard.SavedState { return *f.saved.Load() }

// change edits what is kept. With sync it is on the disk when change returns. It waits for the disk: not for the loop.
func (f *folder) change(sync bool, edit func(*shard.SavedState)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := f.state()
	edit(&next)
	if next == f.state() {
		return nil
	}
	return f.write(next, sync)
}

// raise keeps an epoch that is higher than the one known, and led, of which the node is the primary; 0: it is not.
func (f *folder) raise(epoch, led int64) error {
	return f.change(true, func(m *shard.SavedState) { m.Epoch, m.Led = max(m.Epoch, epoch), max(m.Led, led) })
}

func (f *folder) write(m shard.SavedState, sync bool) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("shard: %w", err)
	}
	next := f.path() + ".next"
	if err := writeFile(next, append(b, '\n'), sync); err != nil {
		return fmt.Errorf("shard: writing the data folder: %w", err)
	}
	if err := os.Rename(next, f.path()); err != nil {
		return fmt.Errorf("shard: writing the data folder: %w", err)
	}
	if sync {
		if err := syncDir(f.dir); err != nil {
			return err
		}
	}
	f.saved.Store(&m)
	return nil
}

func writeFile(path string, b []byte, sync bool) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil && sync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("shard: %w", err)
	}
	_ = d.Sync() // not every file system can
	return d.Close()
}

func (f *folder) close() { _ = f.lock.Close() }

// thisBoot names the run of the kernel whose boot clock this process reads, "" where
// that cannot be told.
func thisBoot() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	ns, _ := os.Readlink("/proc/self/ns/time") // shifts that clock
	return strings.TrimSpace(string(b)) + " " + ns
}

// lockFolder takes the lock of a data folder. It ends with the process if the file is not closed before.
func lockFolder(path string) (*os.File, error) {
	f, err := flock.Open(path)
	switch {
	case errors.Is(err, flock.ErrLocked):
		return nil, fmt.Errorf("%w: %s is locked: another agent uses this data folder; stop it, or name another folder", lease.ErrInvalid, path)
	case err != nil:
		return nil, fmt.Errorf("shard: %w", err)
	}
	return f, nil
}
