package shard

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
	"time"

	"github.com/understudy-ha/understudy/lease"
)

// folder is an agent's data folder: what it must not forget when it is started again.
type folder struct {
	dir  string
	lock *os.File
	boot string

	mu   sync.Mutex
	kept Memory
}

// openFolder locks the folder and reads it, or makes it with a new node id.
func openFolder(dir, shard, boot string, now time.Duration) (*folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("shard: making the data folder: %w", err)
	}
	lock, err := flock(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	f := &folder{dir: dir, lock: lock, boot: boot}
	if err := f.load(shard, now); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return f, nil
}

func (f *folder) load(shard string, now time.Duration) error {
	b, err := os.ReadFile(f.path())
	switch {
	case errors.Is(err, os.ErrNotExist):
		id := make([]byte, 20)
		_, _ = rand.Read(id)
		f.kept = Memory{NodeID: hex.EncodeToString(id), Shard: shard, Boot: f.boot}
		return f.write(f.kept, true)
	case err != nil:
		return fmt.Errorf("shard: reading the data folder: %w", err)
	}
	if err := json.Unmarshal(b, &f.kept); err != nil {
		return fmt.Errorf("%w: %s is damaged: %v; restore it; without it the node is a new one to its shard, which must not be done to the primary", lease.ErrInvalid, f.path(), err)
	}
	if err := ValidateNodeID(f.kept.NodeID); err != nil {
		return fmt.Errorf("%s: %w", f.path(), err)
	}
	if f.kept.Shard != shard {
		return fmt.Errorf("%w: the data folder %s is of a node of shard %q, not %q; use a folder for each node", lease.ErrInvalid, f.dir, f.kept.Shard, shard)
	}
	if f.kept.Boot != f.boot || f.boot == "" {
		// The clock is another one: what was promised is waited out in full.
		if f.kept.Promised > 0 {
			f.kept.Promised = now + MaxPromise
		}
		f.kept.Boot = f.boot
		return f.write(f.kept, true)
	}
	return nil
}

func (f *folder) path() string { return filepath.Join(f.dir, "memory.json") }

// memory returns what is kept.
func (f *folder) memory() Memory {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.kept
}

// change edits what is kept. With sync it is on the disk when change returns.
func (f *folder) change(sync bool, edit func(*Memory)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := f.kept
	edit(&next)
	if next == f.kept {
		return nil
	}
	if err := f.write(next, sync); err != nil {
		return err
	}
	f.kept = next
	return nil
}

// raise keeps an epoch that is higher than the one known.
func (f *folder) raise(epoch int64) error {
	return f.change(true, func(m *Memory) { m.Epoch = max(m.Epoch, epoch) })
}

func (f *folder) write(m Memory, sync bool) error {
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
		return syncDir(f.dir)
	}
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
