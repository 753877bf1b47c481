package postgres

import (
	"crypto/sha256"
	"encoding/json"
	"sync"

	"github.com/understudy-ha/understudy/shard"
)

// digest is a hash of what a report says, without the numbers that change all the time.
type digest [16]byte

// digestOf leaves out what may be lost: reports with the same digest replace each other
// every second, and a crash of the server may take the last ones back.
func digestOf(n shard.Record) (g digest, err error) {
	text, err := json.Marshal(n.Gist())
	if err != nil {
		return g, err
	}
	sum := sha256.Sum256(text)
	return digest(sum[:len(g)]), nil
}

// answeredReports remembers, of each node that is reported through one registry, the digest of the last
// report if that was answered. What was not may be in the database, and yet not be kept:
// where a standby has to confirm, others see a commit whose waiting was cancelled.
type answeredReports struct {
	mu      sync.Mutex
	digests map[string]digest // by node
}

// maxAnswered bounds it; a process reports one node, or a few.
const maxAnswered = 10_000

// forget forgets what is remembered of a node, and reports whether it was this. The report that follows is remembered once it
// is answered.
func (a *answeredReports) forget(node string, g digest) (was bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, ok := a.digests[node]
	delete(a.digests, node)
	return ok && last == g
}

func (a *answeredReports) remember(node string, g digest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.digests == nil || len(a.digests) >= maxAnswered {
		a.digests = map[string]digest{}
	}
	a.digests[node] = g
}
