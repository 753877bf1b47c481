//go:build embedded

package open

import (
	"context"
	"fmt"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

// The clients of servers are a quarter of what a first build compiles.

func openPostgres(context.Context, string, Options) (store.Store, error) {
	return nil, without("PostgreSQL")
}

func openRedis(context.Context, string, Options) (store.Store, error) {
	return nil, without("Redis")
}

func openSableDB(context.Context, string, Options) (store.Store, error) {
	return nil, without("SableDB")
}

func without(kind string) error {
	return fmt.Errorf("%w: this program was built for the embedded store alone (-tags embedded), without %s; use sqlite:PATH, or the program that `make build` makes", lease.ErrInvalid, kind)
}
