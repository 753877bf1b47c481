// Command guarded-service bills once a second, on one instance of several. Each write carries the instance's term, and
// the database refuses a write whose term has ended, however late it comes.
//
//	DATABASE_URL=postgres://… guarded-service NAME
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/understudy-ha/understudy/elect"
	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/postgres"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: DATABASE_URL=postgres://… guarded-service NAME")
		os.Exit(2)
	}
	if err := serve(ctx, os.Args[1], os.Getenv("DATABASE_URL")); err != nil && ctx.Err() == nil {
		slog.Error("guarded-service", "err", err)
		os.Exit(1) // systemd, or whoever started it, starts it again
	}
}

func serve(ctx context.Context, name, database string) error {
	opening, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	store, err := postgres.Open(opening, postgres.Config{URL: database, Logger: slog.Default()})
	if err != nil {
		return err
	}
	defer store.Close()
	keeper, err := lease.NewKeeper(lease.KeeperConfig{Store: store, Roster: store, Instance: lease.NewInstance(name, "")})
	if err != nil {
		return err
	}
	// The session outlives the work, so that a stop releases the role: the other instance follows in milliseconds.
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	kept := make(chan error, 1)
	go func() { kept <- keeper.Run(keeping) }()
	campaign := elect.Config{Keeper: keeper, Role: "billing", Logger: slog.Default()}
	err = elect.Run(ctx, campaign, func(ctx context.Context, term elect.Term) error {
		return work(ctx, store, database, term)
	})
	stop()
	return errors.Join(err, <-kept)
}

// work bills until ctx ends, which is before another instance can be primary.
func work(ctx context.Context, store *postgres.Store, database string, term elect.Term) error {
	db, err := pgx.Connect(ctx, database)
	if err != nil {
		return err
	}
	defer db.Close(context.WithoutCancel(ctx))
	for tick := time.NewTicker(time.Second); ; {
		if err := bill(ctx, store, db, term); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// bill is one transaction. It commits only while the term is current.
func bill(ctx context.Context, store *postgres.Store, db *pgx.Conn, term elect.Term) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO bill (term, by) VALUES ($1, $2)", term.Number, term.Instance.Name)
		if err != nil {
			return err
		}
		return store.RequireTerm(ctx, tx, term.Lease, term.Number)
	})
}
