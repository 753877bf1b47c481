package sqlite

import (
	"context"
	"database/sql"
	"testing"
	"time"
)

// slowPool is a pool of which one statement has to wait for a connection.
type slowPool struct {
	*sql.DB
	slow             string
	entered, release chan struct{}
}

func (p *slowPool) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if query == p.slow {
		p.entered <- struct{}{}
		<-p.release
	}
	return p.DB.PrepareContext(ctx, query)
}

// A statement that waits for a connection holds up no other, and two that are prepared at once become one.
func TestPreparingHoldsUpNobody(t *testing.T) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	pool := &slowPool{DB: db, slow: "SELECT 1", entered: make(chan struct{}, 2), release: make(chan struct{})}
	s := newStatements(pool)
	type prepared struct {
		st  *sql.Stmt
		err error
	}
	prepare := func(text string) <-chan prepared {
		done := make(chan prepared, 1)
		go func() {
			st, err := s.prepare(context.Background(), text)
			done <- prepared{st, err}
		}()
		return done
	}
	one := prepare(pool.slow)
	<-pool.entered
	select {
	case other := <-prepare("SELECT 2"):
		if other.err != nil {
			t.Error(other.err)
		}
	case <-time.After(20 * time.Second):
		close(pool.release)
		t.Fatal("another statement waits as well")
	}
	two := prepare(pool.slow)
	<-pool.entered
	close(pool.release)
	a, b := <-one, <-two
	if a.err != nil || b.err != nil || a.st != b.st {
		t.Errorf("prepared twice: %v, %v", a, b)
	}
	var n int
	if err := a.st.QueryRow().Scan(&n); err != nil || n != 1 {
		t.Errorf("the statement returns %d, %v", n, err)
	}
}
