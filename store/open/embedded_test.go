//go:build embedded

package open_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/store/open"
)

// A program without the clients says so, and what to do.
func TestEmbedded(t *testing.T) {
	for url, kind := range map[string]string{"postgres://127.0.0.1/x": "PostgreSQL", "rediss+sentinel://127.0.0.1:1/m": "Redis", "sabledb://127.0.0.1:1": "SableDB"} {
		st, err := open.Open(t.Context(), url, open.Options{})
		if st != nil || !errors.Is(err, lease.ErrInvalid) || !strings.Contains(err.Error(), "without "+kind) || !strings.Contains(err.Error(), "make build") {
			t.Errorf("%s: %v", url, err)
		}
	}
	st, err := open.Open(t.Context(), "sqlite:"+t.TempDir()+"/store.db", open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Error(err)
	}
}
