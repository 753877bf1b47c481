package postgres_test

import (
	"testing"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/store"
)

func TestCheckupOfAServer(t *testing.T) {
	server := realserver.Postgres(t, realserver.PostgresOptions{})
	database := server.NewDatabase(t)
	for way, url := range map[string]string{"direct": database, "through a pooler": realserver.PgBouncer(t, server).URL(database)} {
		found, err := open(t, url).Checkup(t.Context())
		if err != nil || len(found) != 4 {
			t.Errorf("%s: %+v, %v", way, found, err)
		}
		for _, f := range found {
			if f.Verdict != store.OK {
				t.Errorf("%s: %+v", way, f)
			}
		}
	}
}
