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
	says := fmt.Sprintf("%.0f clients are connected", used)
	if most > 0 {
		says += fmt.Sprintf(", of %.0f at most", most)
	}
	return store.Limit("connections", used, most, says, "instances that restart may not get in",
		"raise maxclients, or find who keeps so many open (CLIENT LIST)")
}

// memory judges how much is left before the server refuses writes, or deletes what it may.
func (i server) memory() store.Finding {
	used, most := i.number("used_memory"), i.number("maxmemory")
	says := fmt.Sprintf("%.0f MiB in use", used/(1<<20))
	if most > 0 {
		says += fmt.Sprintf(", of %.0f MiB at most", most/(1<<20))
	}
	return store.Limit("memory", used, most, says, "soon no session can start and no lease changes hands",
		"raise maxmemory, or keep other data elsewhere")
}
