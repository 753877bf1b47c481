package disk

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"path/filepath"
	"strings"

	"modernc.org/sqlite"
)

// conn is one connection with its prepared statements, opened when it is needed
// and given up when its state is not certain.
type conn struct {
	pool  *sql.DB
	one   *sql.Conn
	stmts map[string]*sql.Stmt
}

// newConn prepares a connection that commits with this level of synchronous. The
// busy timeout is for people who look at the file: nobody else writes it.
func newConn(path, synchronous string) *conn {
	q := "_busy_timeout=2000&_synchronous=" + synchronous +
		"&_error_rc=1&_pragma=journal_size_limit(16777216)&_pragma=cache_size(-4096)&_pragma=temp_store(2)"
	escaped := (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()
	if !strings.HasPrefix(escaped, "/") {
		escaped = "/" + escaped // C:/…
	}
	pool := sql.OpenDB(connector{dsn: "file://" + escaped + "?" + q})
	pool.SetMaxOpenConns(1)
	return &conn{pool: pool, stmts: map[string]*sql.Stmt{}}
}

type connector struct{ dsn string }

func (c connector) Driver() driver.Driver { return &sqlite.Driver{} }

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return c.Driver().Open(c.dsn)
}

func (c *conn) connect(ctx context.Context) error {
	if c.one != nil {
		return nil
	}
	one, err := c.pool.Conn(ctx)
	if err != nil {
		return err
	}
	c.one = one
	return nil
}

func (c *conn) prepare(ctx context.Context, text string) (*sql.Stmt, error) {
	if s := c.stmts[text]; s != nil {
		return s, nil
	}
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	s, err := c.one.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	c.stmts[text] = s
	return s, nil
}

func (c *conn) exec(ctx context.Context, text string, args ...any) error {
	s, err := c.prepare(ctx, text)
	if err != nil {
		return err
	}
	_, err = s.ExecContext(ctx, args...)
	return err
}

// query runs text without preparing it and reads one value.
func (c *conn) query(ctx context.Context, text string, into any) error {
	if err := c.connect(ctx); err != nil {
		return err
	}
	return c.one.QueryRowContext(ctx, text).Scan(into)
}

// write runs fn in a transaction. It stops for ctx before it starts; fn may look
// at ctx too. The statements themselves are not interrupted: they are short, and a
// watcher for each would cost more than they do.
func (c *conn) write(ctx context.Context, fn func(exec func(text string, args ...any) error) error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	calm := context.WithoutCancel(ctx)
	exec := func(text string, args ...any) error { return c.exec(calm, text, args...) }
	if err := exec("BEGIN IMMEDIATE"); err != nil {
		c.discard() // it may be the connection's fault
		return err
	}
	err := fn(exec)
	if err == nil {
		err = exec("COMMIT")
	}
	if err == nil {
		return nil
	}
	// After some errors, a full disk for one, SQLite has rolled back by itself.
	if rolled := exec("ROLLBACK"); rolled != nil && !strings.Contains(rolled.Error(), "no transaction is active") {
		c.discard()
	}
	return err
}

// discard gives the connection up; closing it rolls back whatever it had started.
func (c *conn) discard() {
	for _, s := range c.stmts {
		_ = s.Close()
	}
	clear(c.stmts)
	if c.one != nil {
		_ = c.one.Raw(func(any) error { return driver.ErrBadConn })
		c.one = nil
	}
}

func (c *conn) close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.Close())
	}
	if c.one != nil {
		errs = append(errs, c.one.Close())
	}
	return errors.Join(append(errs, c.pool.Close())...)
}
