package postgres

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store"
)

var (
	_ store.Store      = (*Store)(nil)
	_ lease.FewWatcher = (*Store)(nil)
)

// DefaultSchema is where the store's tables are when nothing else is said.
const DefaultSchema = "understudy"

// Config says where the store is.
type Config struct {
	// URL of the database: postgres://user:password@host:port/database, with the
	// options of libpq (sslmode, sslrootcert, target_session_attrs, …) and
	// schema=NAME; any other goes to the server as a setting, but for those that this package sets itself, which
	// are refused (ownSettings). Several hosts are tried in turn, each for its share of a call's time (at most connect_timeout, 5 s),
	// the one that accepted the last connection first; unless the URL says otherwise, only one that accepts writes is used. Required.
	URL string
	// Schema in that database. Default: what the URL says, or "understudy".
	// 1 to 40 of a–z, 0–9 and '_', beginning with a letter, and not with "pg_".
	Schema string
	// Connections that may be open at once, besides those that listen; one place
	// among them is only for sessions. Default and least: 2.
	Connections int
	// NoMigrate leaves the schema as it is: it may be missing or old, and only
	// Inspect and Migrate are sure to work.
	NoMigrate bool
	// Logger; nil is silent.
	Logger *slog.Logger
}

// Store is a store in PostgreSQL. It is safe to use from many goroutines.
type Store struct {
	schema   string
	location string
	pool     *pool
	log      *slog.Logger
	rules    ruleSet
	names    *strings.Replacer
	floors   readyFloors
	monitors *monitors
	renewals renewals
	listener *sharedListener

	restoring sync.Mutex
	restored  time.Time // guarded by restoring
}

// Open connects to the database and brings its schema up to date. It returns
// lease.ErrInvalid for a configuration that cannot be right, lease.ErrUnavailable
// when the server does not answer before ctx ends, and store.ErrSchema.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	rules, err := readRules()
	if err != nil {
		return nil, err
	}
	return openWith(ctx, cfg, rules)
}

func openWith(ctx context.Context, cfg Config, rules ruleSet) (*Store, error) {
	conn, location, schema, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	schema = cmp.Or(cfg.Schema, schema)
	if !validSchema(schema) {
		return nil, fmt.Errorf("%w: schema %q: use 1 to 40 of a–z, 0–9 and '_', beginning with a letter and not with pg_", lease.ErrInvalid, schema)
	}
	s := &Store{
		schema: schema, location: location, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)).With("store", location),
		rules: rules, names: renderer(schema, rules),
		pool: newPool(conn, max(2, cfg.Connections)),
	}
	s.monitors = &monitors{db: s}
	s.renewals.store = s
	s.pool.rehearsal = s.sql("SELECT {{rules}}.rehearse()")
	s.listener = &sharedListener{watch: s.Watch, closing: s.pool.closing}
	if cfg.NoMigrate {
		err = s.pool.withConnection(ctx, ordinary, func(ctx context.Context, conn *pgx.Conn) error { return conn.Ping(ctx) })
	} else {
		_, _, err = s.Migrate(ctx)
		s.pool.restore = s.restoreRules
	}
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("opening %s: %w", location, asRefusedOption(err, conn))
	}
	return s, nil
}

// Close implements [store.Admin].
func (s *Store) Close() error {
	s.pool.close()
	s.listener.close()
	return nil
}

var schemaName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)

func validSchema(name string) bool {
	return schemaName.MatchString(name) && !strings.HasPrefix(name, "pg_")
}

// sql puts names into a statement.
func (s *Store) sql(text string) string { return s.names.Replace(text) }

// secrets are the options of a URL that must not be shown.
var secrets = []string{"password", "sslpassword"}

// ownSettings are settings that connections or functions set for themselves, and why; another value in the URL would have no
// effect where it matters. (Functions set others, too, of which a URL may name any.)
var ownSettings = map[string]string{
	"client_encoding": "answers are read in one form", "datestyle": "answers are read in one form", "timezone": "answers are read in one form",
	"default_transaction_isolation": "calls need READ COMMITTED",
	"lock_timeout":                  "a call waits for locks until shortly before its own deadline",
	"jit":                           "compiling short statements takes longer than they do",
	"enable_seqscan":                "functions choose how they are planned", "plan_cache_mode": "functions choose how they are planned",
}

// parseURL returns how to connect, the URL without its secrets, and the schema.
func parseURL(raw string) (conn *pgx.ConnConfig, location, schema string, err error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		// What cannot be taken apart cannot be shown: it may hold a password.
		return nil, "", "", fmt.Errorf("%w: the URL of the database should look like postgres://user:password@host:5432/database", lease.ErrInvalid)
	}
	q := u.Query()
	schema = DefaultSchema
	if q.Has("schema") {
		schema = q.Get("schema")
		q.Del("schema")
	}
	for name := range q {
		if why, own := ownSettings[strings.ToLower(name)]; own {
			return nil, "", "", fmt.Errorf("%w: the option %q of the URL is refused: this program sets it itself, as %s; leave it out", lease.ErrInvalid, name, why)
		}
	}
	u.RawQuery = q.Encode()
	full := u.String()

	shown := *u
	for _, name := range secrets {
		q.Del(name)
	}
	shown.RawQuery = q.Encode()
	if u.User != nil {
		shown.User = url.User(u.User.Username())
	}
	// The driver's complaint is about the URL that may be shown.
	if _, err := pgx.ParseConfig(shown.String()); err != nil {
		return nil, "", "", fmt.Errorf("%w: %w", lease.ErrInvalid, err)
	}
	conn, err = pgx.ParseConfig(full)
	if err != nil {
		return nil, "", "", fmt.Errorf("%w: the password in the URL of %s cannot be read; percent-encode it", lease.ErrInvalid, shown.Redacted())
	}
	configure(conn, q.Has("target_session_attrs"))
	if schema != DefaultSchema {
		q.Set("schema", schema)
		shown.RawQuery = q.Encode()
	}
	return conn, shown.String(), schema, nil
}

// configure makes connections fit for what this package does.
func configure(c *pgx.ConnConfig, targeted bool) {
	// One round trip, and nothing stays behind on the server: poolers share it.
	c.DefaultQueryExecMode = pgx.QueryExecModeExec
	c.StatementCacheCapacity, c.DescriptionCacheCapacity = 0, 0
	// What a role or database may have set otherwise. PgBouncer passes these on.
	c.RuntimeParams["client_encoding"] = "UTF8"
	c.RuntimeParams["datestyle"] = "ISO, MDY"
	c.RuntimeParams["timezone"] = "UTC"
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "understudy"
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = 5 * time.Second
	}
	// A connection that went silent is noticed before a default timeout has ended.
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 3 * time.Second, Interval: time.Second, Count: 3}}
	c.DialFunc = dialer.DialContext
	several := slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != c.Host || f.Port != c.Port })
	if several && !targeted {
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
}
