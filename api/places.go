package api

import (
	"net/http"
	"sync"

	"github.com/understudy-ha/understudy/internal/ratelimit"
)

// callerShare is the part of the places that one caller may have.
const callerShare = 4

// places are a bounded number of something that requests hold for long: streams, waits, long bodies. One caller may hold a
// quarter of them, so that it cannot shut out all others; callers on this host are trusted as by [Limits].
type places struct {
	total    int
	loopback bool // callers on this host have a share, too

	mu    sync.Mutex
	taken int
	by    map[bucketKey]int
}

func newPlaces(total int, limits Limits) *places {
	return &places{total: total, loopback: limits.Loopback, by: map[bucketKey]int{}}
}

// take takes a place for a request, of which keep must stay free for others. leave gives it back.
func (p *places) take(r *http.Request, keep int) (leave func(), err error) {
	addr := addressOf(r)
	key := bucketKey{token: callerOf(r.Context()).token.ID}
	if key.token == "" {
		key.addr = ratelimit.Network(addr)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	full := p.taken >= p.total-keep
	if shared := p.loopback || !addr.IsLoopback(); full || shared && p.by[key] >= max(1, p.total/callerShare) {
		return nil, errBusy
	}
	p.taken++
	p.by[key]++
	return func() { p.leave(key) }, nil
}

func (p *places) leave(key bucketKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.by[key]--; p.by[key] == 0 {
		delete(p.by, key)
	}
}

// len is how many are taken.
func (p *places) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}
