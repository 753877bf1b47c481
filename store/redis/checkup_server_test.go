package redis_test

import (
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/internal/testkit/realserver"
	"github.com/understudy-ha/understudy/store"
)

func TestCheckupOfAServer(t *testing.T) {
	server := realserver.Redis(t, realserver.RedisOptions{Args: []string{"--maxmemory", "100mb"}})
	found, err := openFresh(t, server.URL(), "").Checkup(t.Context())
	if err != nil || len(found) != 2 {
		t.Fatalf("%+v, %v", found, err)
	}
	for _, f := range found {
		if f.Verdict != store.OK || !strings.Contains(f.Says, "at most") {
			t.Errorf("%+v", f)
		}
	}
}
