package sqlite

import (
	"os"

	"golang.org/x/sys/unix"
)

// writesTo returns a channel that gets a value whenever any process has written to the file, or nil if the kernel
// cannot report that; stop ends it. Values that nobody has read are one.
func writesTo(path string) (written <-chan struct{}, stop func()) {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return nil, func() {} // the host's limit on watches is reached, say: polling goes on
	}
	events := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_MODIFY); err != nil {
		_ = events.Close()
		return nil, func() {}
	}
	c, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for buf := make([]byte, 4096); ; {
			if _, err := events.Read(buf); err != nil {
				return // stop was called
			}
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}()
	return c, func() { _ = events.Close(); <-ended }
}
