package instance

import (
	"github.com/understudy-ha/understudy/internal/plain"
	"github.com/understudy-ha/understudy/internal/usage"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store"
)

// Queues returns the queues of a store that keeps some.
func (h *Host) Queues(st store.Store) (store.Queues, error) {
	if q, ok := st.(store.Queues); ok {
		return q, nil
	}
	return nil, usage.Errorf("the store %s keeps no queues; SQLite (sqlite:PATH) and PostgreSQL (postgres://…) do", plain.URL(h.StoreURL))
}

// Monitor returns the monitor's table of a store that keeps one.
func (h *Host) Monitor(st store.Store) (monitor.Table, error) {
	if m, ok := st.(store.Monitors); ok {
		return m.Monitor(), nil
	}
	return nil, usage.Errorf("the store %s keeps no sources; SQLite (sqlite:PATH) and PostgreSQL (postgres://…) do", plain.URL(h.StoreURL))
}

// Shards is what the store keeps about shards.
func Shards(st store.Store) (store.Shards, error) {
	s, ok := st.(store.Shards)
	if !ok {
		return nil, usage.Errorf("this store keeps no shards; use sqlite:PATH, postgres://… or redis://…")
	}
	return s, nil
}
