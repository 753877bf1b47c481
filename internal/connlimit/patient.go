package connlimit

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"
)

// Pauses of a patient listener: the first, and the longest.
const firstPause, mostPause = 5 * time.Millisecond, time.Second

// patient is a listener that tries again.
type patient struct {
	net.Listener
	ctx context.Context
	log *slog.Logger
}

// Patient returns the listener with an Accept that pauses and tries again while no connection can be accepted, as when the
// process has no file left. It returns an error only when the listener is closed or ctx has ended.
func Patient(ctx context.Context, l net.Listener, log *slog.Logger) net.Listener {
	return patient{l, ctx, log}
}

// Accept implements [net.Listener].
func (p patient) Accept() (net.Conn, error) {
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		c, err := p.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) || p.ctx.Err() != nil {
			return c, err
		}
		p.log.Warn("a connection could not be accepted", "port", p.Addr().String(), "err", err, "pause", pause)
		select {
		case <-p.ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}
