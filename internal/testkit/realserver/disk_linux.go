package realserver

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// SmallDisk mounts a file system of that size, as in "16m", for as long as the test
// runs. Where that is not allowed the test is skipped, or fails for root where servers are required, and in
// `make prove`.
func SmallDisk(t *testing.T, size string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("understudy-test", dir, "tmpfs", 0, "size="+size); err != nil {
		if os.Getenv(proveEnv) == "1" || os.Geteuid() == 0 && os.Getenv(RequireEnv) == "1" {
			t.Fatalf("mounting a small disk, as root: %v", err)
		}
		t.Skipf("a small disk cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmounting %s: %v", dir, err)
		}
	})
	return dir
}

// FillDisk writes to a file of its own in dir until nothing more fits. free gives it all
// back.
func FillDisk(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 16; size > 0; {
		_, err := f.Write(make([]byte, size))
		switch {
		case errors.Is(err, syscall.ENOSPC):
			size /= 2
		case err != nil:
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
