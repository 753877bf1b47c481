package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/postgres"
)

// A migration that has to wait for an open transaction holds up nobody else: PostgreSQL queues every later request for the same table
// or view behind that of the migration.
func TestMigrationBesideAnOpenTransaction(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	url := server.NewDatabase(t)
	open(t, url)
	const read = "SELECT count(*) FROM understudy.heartbeats"
	holder := begin(t, connect(t, url))
	if _, err := holder.Exec(t.Context(), read); err != nil {
		t.Fatal(err)
	}
	migrate := func(within time.Duration) <-chan error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		done := make(chan error, 1)
		go func() {
			defer cancel()
			s, err := postgres.OpenOther(ctx, postgres.Config{URL: url})
			if err == nil {
				err = s.Close()
			}
			done <- err
		}()
		return done
	}
	migrated := migrate(time.Minute)
	admin := connect(t, url)
	realserver.Eventually(t, ample, "the migration waits for the view", func() error {
		var waits bool
		err := admin.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted)").Scan(&waits)
		if err == nil && !waits {
			err = errors.New("not yet")
		}
		return err
	})
	goesOn := make(chan error, 1)
	other := connect(t, url)
	go func() { _, err := other.Exec(t.Context(), read); goesOn <- err }()
	select {
	case err := <-goesOn:
		if err != nil {
			t.Error(err)
		}
	case err := <-migrated:
		t.Fatalf("the migration ended first: %v", err)
	}

	if err := <-migrate(3 * time.Second); !errors.Is(err, lease.ErrUnavailable) || !strings.Contains(err.Error(), "pg_stat_activity") {
		t.Errorf("a migration that gives up: %v, want ErrUnavailable and what to do", err)
	}
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Errorf("the migration, once the transaction has ended: %v", err)
	}
}
