package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"modernc.org/sqlite"

	"github.com/understudy-ha/understudy/cache"
)

// Repaired is what [Repair] has done.
type Repaired struct {
	// Damage is what is wrong with the file; empty: nothing is, and nothing was done.
	Damage string
	// Aside is where the damaged file is now, with its -wal and -shm beside it.
	Aside string
	// Ceiling is the ceiling of terms that the new file has; 0: it could not be read.
	Ceiling int64
	// Removals is how many removals were kept.
	Removals int
}

// Repair checks the file of a directory that no peer uses, sets it aside if it is damaged, and makes a new one that has
// of it what a peer must not forget. Errors are [ErrInUse], [ErrFile] for the file of another program or of a newer
// version, which stays, and what the file system says.
func Repair(ctx context.Context, dir string) (out Repaired, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return out, fmt.Errorf("disk: %w", err)
	}
	path := filepath.Join(dir, fileName)
	if _, err := os.Stat(path); err != nil {
		return out, fmt.Errorf("disk: there is nothing to repair: %w", err)
	}
	lock, err := lockFolder(filepath.Join(dir, lockName))
	if err != nil {
		return out, err
	}
	defer lock.Close()
	log := slog.New(slog.DiscardHandler)
	state, err := inspect(ctx, newStorage(path, lock, log), &out)
	if err != nil || out.Damage == "" {
		return out, err
	}
	fresh := path + ".new"
	if err := writeState(ctx, newStorage(fresh, lock, log), state); err != nil {
		return out, err
	}
	out.Aside = path + ".damaged-" + time.Now().UTC().Format("20060102T150405")
	// The log goes first: beside another database it would be taken for that one's.
	for _, part := range []string{"-wal", "-shm", ""} {
		if err := os.Rename(path+part, out.Aside+part); err != nil && !(part != "" && errors.Is(err, fs.ErrNotExist)) {
			return out, fmt.Errorf("disk: setting the damaged file aside: %w", err)
		}
	}
	if err := os.Rename(fresh, path); err != nil {
		return out, fmt.Errorf("disk: putting the new file in its place: %w", err)
	}
	return out, syncDir(dir)
}

// inspect says in out what is wrong with a file, and returns what can be read of it.
func inspect(ctx context.Context, s *Storage, out *Repaired) (state cache.State, err error) {
	defer func() { _ = s.closeConns() }()
	if s.file, err = os.Stat(s.path); err != nil {
		return state, err
	}
	_, err = s.checkFile(ctx)
	switch {
	case errors.Is(err, errVersion):
		out.Damage = err.Error() // of the header alone, perhaps: the rest is read
	case err != nil:
		if _, damaged := errors.AsType[*sqlite.Error](err); damaged {
			out.Damage = err.Error()
			return state, nil
		}
		return state, err
	}
	var check string
	if err := s.sure.query(ctx, "PRAGMA quick_check(1)", &check); err != nil {
		out.Damage = err.Error()
	} else if check != "ok" {
		out.Damage = check
	}
	note := func(err error) {
		if err != nil && out.Damage == "" {
			out.Damage = err.Error()
		}
	}
	// Each by itself: what one page has lost, another may have.
	state.Ceiling, state.Members, err = s.loadPeer(ctx)
	note(err)
	state.Removals, err = s.loadRemovals(ctx)
	note(err)
	out.Ceiling, out.Removals = state.Ceiling, len(state.Removals)
	return state, nil
}

// writeState makes a file that has a state and no copies.
func writeState(ctx context.Context, s *Storage, state cache.State) error {
	for _, part := range []string{"", "-wal", "-shm"} { // of a repair that was interrupted
		if err := os.Remove(s.path + part); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("disk: %w", err)
		}
	}
	err := s.open(ctx)
	if err == nil && state.Ceiling > 0 {
		err = s.Raise(ctx, state.Ceiling)
	}
	if err == nil && len(state.Members.Members) > 0 {
		err = s.SaveMembers(ctx, state.Members)
	}
	if err == nil && len(state.Removals) > 0 {
		err = s.SaveRemovals(ctx, state.Removals)
	}
	return errors.Join(err, s.closeConns())
}
