// Command outbox takes an order and enqueues the message about it, in one transaction of its own, with nothing but a
// driver.
//
//	DATABASE_URL=postgres://… outbox ID CUSTOMER PIECES
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: DATABASE_URL=postgres://… outbox ID CUSTOMER PIECES")
		os.Exit(2)
	}
	if err := order(os.Getenv("DATABASE_URL"), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "outbox:", err)
		os.Exit(1)
	}
}

func order(database, id, customer, pieces string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	db, err := pgx.Connect(ctx, database)
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT understudy.enqueue('orders', $1, $2, $3)", customer, []byte(pieces+" pieces"), id); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO orders VALUES ($1, $2, $3::text::int)", id, customer, pieces)
		return err
	})
}
