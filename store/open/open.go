package open

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
	"github.com/understudy-ha/understudy/store/sqlite"
)

// Options are those that all stores share.
type Options struct {
	// NoMigrate leaves the schema as it is: it may be missing or old, and only
	// Inspect and Migrate are sure to work.
	NoMigrate bool
	// MustExist refuses an SQLite file that is missing, which is made otherwise.
	MustExist bool
	// IntoExisting adds the tables to an SQLite database of another program, which is refused otherwise.
	IntoExisting bool
	// Connections to PostgreSQL that may be open at once; the others need no bound.
	// 0: as few as it takes. What does several things at once for others wants one
	// for each.
	Connections int
	// Logger; nil is silent.
	Logger *slog.Logger
}

// Open opens the store that the URL names, and brings its schema up to date. It
// returns lease.ErrInvalid for a URL that names none, lease.ErrUnavailable for
// a store that does not answer before ctx ends, and store.ErrSchema.
func Open(ctx context.Context, url string, o Options) (store.Store, error) {
	scheme, rest, _ := strings.Cut(url, ":")
	switch scheme {
	case "sqlite":
		return sqlite.Open(ctx, sqlite.Config{Path: strings.TrimPrefix(rest, "//"), NoMigrate: o.NoMigrate, MustExist: o.MustExist, IntoExisting: o.IntoExisting, Logger: o.Logger})
	case "postgres", "postgresql":
		return openPostgres(ctx, url, o)
	case "redis", "rediss", "redis+sentinel", "rediss+sentinel":
		return openRedis(ctx, url, o)
	case "sabledb":
		return openSableDB(ctx, url, o)
	default:
		if scheme == url { // it may be a password, put where the URL belongs
			return nil, fmt.Errorf("%w: the store URL has no colon; use sqlite:PATH, postgres://…, redis://… or sabledb://…", lease.ErrInvalid)
		}
		return nil, fmt.Errorf("%w: store URL begins with %q; use sqlite:PATH, postgres://…, redis://… or sabledb://…", lease.ErrInvalid, scheme)
	}
}

// Salvage copies what can be read of a damaged SQLite store into a new file; see [sqlite.Salvage].
func Salvage(ctx context.Context, url, to string) (store.Salvaged, error) {
	scheme, rest, _ := strings.Cut(url, ":")
	if scheme != "sqlite" {
		return store.Salvaged{}, fmt.Errorf("%w: only an SQLite store is a file that can be salvaged; restore a server's data with its own tools", lease.ErrInvalid)
	}
	return sqlite.Salvage(ctx, strings.TrimPrefix(rest, "//"), to)
}

// DefaultURL is the store that is used when none is named: an SQLite file in
// the user's state directory.
func DefaultURL() (string, error) {
	path, err := sqlite.DefaultPath()
	if err != nil {
		return "", err
	}
	return "sqlite:" + path, nil
}
