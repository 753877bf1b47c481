package redis

import (
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/store"
)

func TestServerIsJudged(t *testing.T) {
	for name, c := range map[string]struct {
		info            server
		clients, memory store.Verdict
	}{
		"no limits":         {server{"connected_clients": "9000", "used_memory": "9000000000", "maxmemory": "0"}, store.OK, store.OK},
		"room":              {server{"connected_clients": "90", "maxclients": "10000", "used_memory": "1000", "maxmemory": "100000"}, store.OK, store.OK},
		"much in use":       {server{"connected_clients": "8500", "maxclients": "10000", "used_memory": "85", "maxmemory": "100"}, store.Warn, store.Warn},
		"hardly any left":   {server{"connected_clients": "9900", "maxclients": "10000", "used_memory": "99", "maxmemory": "100"}, store.Bad, store.Bad},
		"numbers that none": {server{"connected_clients": "many", "maxclients": "?", "maxmemory": "all"}, store.OK, store.OK},
	} {
		t.Run(name, func(t *testing.T) {
			for f, want := range map[store.Finding]store.Verdict{c.info.clients(): c.clients, c.info.memory(): c.memory} {
				if f.Verdict != want || f.Says == "" || (f.Do == "") != (want == store.OK) {
					t.Errorf("%+v; want %s", f, want)
				}
			}
		})
	}
}

func TestReplicationIsJudged(t *testing.T) {
	for name, c := range map[string]struct{ minReplicas, maxLag, want string }{
		"may not be read":     {"", "", ""},
		"off":                 {"0", "10", "as long as the partition lasts; set min-replicas-to-write 1"},
		"off by the lag":      {"1", "0", "as long as the partition lasts; set min-replicas-to-write 1"},
		"longer than T":       {"1", "10", "for about 10 s, and two holders may meet for as long; set it below T"},
		"as long as T":        {"1", "5", "set it below T"},
		"bounded":             {"1", "4", ""},
		"bounded by two more": {"2", "1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := replicationWarnings(c.minReplicas, c.maxLag)
			if !strings.Contains(got[0], "up to T") || len(got) > 2 || (len(got) == 2) != (c.want != "") || !strings.Contains(got[len(got)-1], c.want) {
				t.Errorf("%q; want one that says %q", got, c.want)
			}
		})
	}
}
