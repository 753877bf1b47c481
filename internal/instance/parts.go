package instance

import (
	"strings"

	"github.com/understudy-ha/understudy/internal/termtext"
	"github.com/understudy-ha/understudy/internal/usererr"
	"github.com/understudy-ha/understudy/job"
	"github.com/understudy-ha/understudy/monitor"
	"github.com/understudy-ha/understudy/store"
)

// Queues returns the queues of a store that keeps some.
func (h *Host) Queues(st store.Store) (store.Queues, error) {
	if q, ok := st.(store.Queues); ok {
		return q, nil
	}
	return nil, h.NotSupported("queues")
}

// NotSupported is the error of a store that does not support a feature: queues, sources or jobs.
func (h *Host) NotSupported(feature string) error {
	others := "SQLite (sqlite:PATH) and PostgreSQL (postgres://…)"
	if feature == "jobs" {
		others = "SQLite (sqlite:PATH), PostgreSQL (postgres://…) and Redis (redis://…)"
	}
	return usererr.Errorf("the store %s keeps no %s; %s do", termtext.URL(h.StoreURL), feature, others)
}

// CheckStoreSupports returns NotSupported for a store that never supports a feature, by its URL: nothing waits for an
// answer of the store.
func (h *Host) CheckStoreSupports(feature string) error {
	if strings.HasPrefix(h.StoreURL, "redis") && feature != "jobs" || strings.HasPrefix(h.StoreURL, "sabledb:") {
		return h.NotSupported(feature)
	}
	return nil
}

// Monitor returns the monitor's table of a store that keeps one.
func (h *Host) Monitor(st store.Store) (monitor.Store, error) {
	if m, ok := st.(store.Monitors); ok {
		return m.Monitor(), nil
	}
	return nil, h.NotSupported("sources")
}

// Jobs returns the jobs of a store that keeps some.
func (h *Host) Jobs(st store.Store) (job.Store, error) {
	if j, ok := st.(store.Jobs); ok {
		return j.Jobs(), nil
	}
	return nil, h.NotSupported("jobs")
}

// Shards is what the store keeps about shards.
func Shards(st store.Store) (store.Shards, error) {
	s, ok := st.(store.Shards)
	if !ok {
		return nil, usererr.Errorf("this store keeps no shards; use sqlite:PATH, postgres://…, redis://… or sabledb://…")
	}
	return s, nil
}
