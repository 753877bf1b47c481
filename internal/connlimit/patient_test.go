package connlimit

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// fullListener has no file left for so many calls, and then is closed.
type fullListener struct {
	net.Listener
	fails int
}

func (l *fullListener) Addr() net.Addr { return &net.TCPAddr{} }

func (l *fullListener) Accept() (net.Conn, error) {
	if l.fails--; l.fails >= 0 {
		return nil, syscall.EMFILE
	}
	return nil, net.ErrClosed
}

// TestPatient: while no file is left it tries again, less and less often, until it is closed or its context ends.
func TestPatient(t *testing.T) {
	for _, c := range []struct {
		fails int
		ends  time.Duration // of the context
		want  error
		took  time.Duration
		lines int
	}{
		{0, time.Hour, net.ErrClosed, 0, 0},
		{10, time.Hour, net.ErrClosed, 3275 * time.Millisecond, 1},
		{1000, 2 * time.Second, syscall.EMFILE, 2 * time.Second, 1},
		{1000, 90 * time.Second, syscall.EMFILE, 90 * time.Second, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.ends)
			defer cancel()
			began := time.Now()
			var log bytes.Buffer
			_, err := Patient(ctx, &fullListener{fails: c.fails}, slog.New(slog.NewTextHandler(&log, nil))).Accept()
			if lines := bytes.Count(log.Bytes(), []byte("\n")); lines != c.lines {
				t.Errorf("%d calls without a file: %d lines, want %d", c.fails, lines, c.lines)
			}
			if took := time.Since(began); !errors.Is(err, c.want) || took != c.took {
				t.Errorf("%d calls without a file: %v after %v, want %v after %v", c.fails, err, took, c.want, c.took)
			}
		})
	}
}
