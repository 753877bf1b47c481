package postgres

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"sync"

	"github.com/understudy-ha/understudy/shard"
)

// gist sums up what a report says, but for numbers that move all the time.
type gist [16]byte

// gistOf leaves out what nobody relies on to be kept: reports with the same gist replace each other
// every second, and a crash of the server may take the last ones back.
func gistOf(n shard.Record) (g gist, err error) {
	n.Txn, n.Keys, n.Updated = 0, 0, 0
	if n.Link != nil {
		link := *n.Link
		link.Input = 0
		n.Link = &link
	}
	if n.Opinion != nil {
		opinion := *n.Opinion
		opinion.Age, opinion.Silence, opinion.Closed = 0, 0, 0
		n.Opinion = &opinion
	}
	n.Followers = slices.Clone(n.Followers)
	for i := range n.Followers {
		n.Followers[i].Txn, n.Followers[i].Lag = 0, 0
	}
	text, err := json.Marshal(n)
	if err != nil {
		return g, err
	}
	sum := sha256.Sum256(text)
	return gist(sum[:len(g)]), nil
}

// accepted remembers, of each node that is reported through one registry, the gist of the last
// report if that was answered. What was not may be in the database, and yet not be kept:
// where a standby has to confirm, others see a commit whose waiting was cancelled.
type accepted struct {
	mu    sync.Mutex
	gists map[string]gist // by node
}

// maxAccepted bounds it; a process reports one node, or a few.
const maxAccepted = 10_000

// take forgets what is remembered of a node, and tells whether it was this.
func (a *accepted) take(node string, g gist) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, ok := a.gists[node]
	delete(a.gists, node)
	return ok && last == g
}

func (a *accepted) put(node string, g gist) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gists == nil || len(a.gists) >= maxAccepted {
		a.gists = map[string]gist{}
	}
	a.gists[node] = g
}
