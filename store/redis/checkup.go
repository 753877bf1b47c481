package redis

import (
	"context"
	"fmt"
	"strconv"

	"github.com/understudy-ha/understudy/store"
)

// Checkup implements [store.Checkups].
func (s *Store) Checkup(ctx context.Context) ([]store.Finding, error) {
	info, err := s.server(ctx)
	if err != nil {
		return nil, fmt.Errorf("checking %s: %w", s.target.location, err)
	}
	if len(info) == 0 {
		return nil, nil // this user may not ask; Inspect says so
	}
	return []store.Finding{info.clients(), info.memory()}, nil
}

func (i server) number(name string) float64 {
	n, _ := strconv.ParseFloat(i[name], 64)
	return n
}

func (i server) clients() store.Finding {
	used, most := i.number("connected_clients"), i.number("maxclients")
	f := store.Finding{Check: "connections", Verdict: store.OK, Says: fmt.Sprintf("%.0f clients are connected", used)}
	if most <= 0 {
		return f
	}
	f.Says += fmt.Sprintf(", of %.0f at most", most)
	const do = "raise maxclients, or find who keeps so many open (CLIENT LIST)"
	switch share := used / most; {
	case share >= .95:
		f.Verdict, f.Do = store.Bad, do
		f.Says += ": instances that restart may not get in"
	case share >= .8:
		f.Verdict, f.Do = store.Warn, do
	}
	return f
}

// memory judges how much is left before the server refuses writes, or deletes what it may.
func (i server) memory() store.Finding {
	used, most := i.number("used_memory"), i.number("maxmemory")
	f := store.Finding{Check: "memory", Verdict: store.OK, Says: fmt.Sprintf("%.0f MiB in use", used/(1<<20))}
	if most <= 0 {
		return f
	}
	f.Says += fmt.Sprintf(", of %.0f MiB at most", most/(1<<20))
	const do = "raise maxmemory, or keep other data elsewhere"
	switch share := used / most; {
	case share >= .95:
		f.Verdict, f.Do = store.Bad, do
		f.Says += ": writes are refused soon, and sessions cannot be renewed"
	case share >= .8:
		f.Verdict, f.Do = store.Warn, do
	}
	return f
}
