package settings

import (
	"io"
	"os"
	"syscall"

	"github.com/understudy-ha/understudy/internal/usererr"
)

// maxFile is the most bytes of a configuration's file: 10,000 checks have less than half of it.
const maxFile = 4 << 20

// readFile reads a configuration's file, which must be a regular one: a pipe may never be written, and a device never ends.
func readFile(path string) ([]byte, error) {
	// Opening a pipe without O_NONBLOCK waits for its writer, and no signal ends that.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, usererr.Errorf("%v", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, usererr.Errorf("%v", err)
	}
	if !info.Mode().IsRegular() {
		return nil, usererr.Errorf("%s is not a regular file: a configuration cannot be read from a directory, a pipe or a device (copy it into a file)", path)
	}
	return readBounded(path, f)
}

// readBounded reads a configuration to its end.
func readBounded(path string, from io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, maxFile+1))
	if err != nil {
		return nil, usererr.Errorf("%s: %v", path, err)
	}
	if len(text) > maxFile {
		return nil, usererr.Errorf("%s is larger than %d MiB", path, maxFile>>20)
	}
	return text, nil
}
