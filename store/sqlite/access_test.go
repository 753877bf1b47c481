package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/understudy-ha/understudy/access/accesstest"
	"github.com/understudy-ha/understudy/store/sqlite"
)

func TestAccess(t *testing.T) {
	accesstest.TestTokens(t, func(t *testing.T) accesstest.Subject {
		t.Parallel()
		c := newTwoClocks()
		cfg := sqlite.Config{Path: filepath.Join(t.TempDir(), "store.db"), Clock: c, Wall: c.Wall}
		s := open(t, cfg)
		return accesstest.Subject{Tokens: s.Tokens(), Other: open(t, cfg).Tokens(), History: s, Advance: c.step}
	})
}
