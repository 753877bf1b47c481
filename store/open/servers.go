//go:build !embedded

package open

import (
	"context"

	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/postgres"
	"github.com/understudy-ha/understudy/store/redis"
	"github.com/understudy-ha/understudy/store/sabledb"
)

func openPostgres(ctx context.Context, url string, o Options) (store.Store, error) {
	return postgres.Open(ctx, postgres.Config{URL: url, NoMigrate: o.NoMigrate, Connections: o.Connections, Logger: o.Logger})
}

func openRedis(ctx context.Context, url string, o Options) (store.Store, error) {
	return redis.Open(ctx, redis.Config{URL: url, NoMigrate: o.NoMigrate, Logger: o.Logger})
}

func openSableDB(ctx context.Context, url string, o Options) (store.Store, error) {
	s, err := sabledb.Open(ctx, sabledb.Config{URL: url, NoMigrate: o.NoMigrate})
	if err != nil {
		return nil, err
	}
	return s, nil
}
