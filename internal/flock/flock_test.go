package flock_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/understudy-ha/understudy/internal/flock"
)

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := flock.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := flock.Open(path); !errors.Is(err, flock.ErrLocked) {
		t.Errorf("the second got %v", err)
	}
	first.Close()
	second, err := flock.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
	if _, err := flock.Open(filepath.Join(path, "none")); err == nil {
		t.Error("opened in a file")
	}
}
