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

// patient is a listener that tries again. One goroutine accepts.
type patient struct {
	net.Listener
	ctx      context.Context
	log      *slog.Logger
	loggedAt time.Time
}

// Patient returns the listener with an Accept that pauses and tries again while no connection can be accepted, as when the
// process has no file left, which is logged once a minute. It returns an error only when the listener is closed or ctx has ended.
func Patient(ctx context.Context, l net.Listener, log *slog.Logger) net.Listener {
	return &patient{Listener: l, ctx: ctx, log: log}
}

// Accept implements [net.Listener].
func (p *patient) Accept() (net.Conn, error) {
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		c, err := p.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) || p.ctx.Err() != nil {
			return c, err
		}
		if now := time.Now(); now.Sub(p.loggedAt) >= refusalsEvery {
			p.log.Warn("connections cannot be accepted; trying again", "port", p.Addr().String(), "err", err)
			p.loggedAt = now
		}
		select {
		case <-p.ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}
