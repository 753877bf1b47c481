package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const stream = `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestFaultCache"}
{"Action":"run","Package":"p","Test":"TestFaultCache/a_peer_dies/sqlite"}
{"Action":"pass","Package":"p","Test":"TestFaultCache/a_peer_dies/sqlite","Elapsed":2}
{"Action":"run","Package":"p","Test":"TestFaultCache/a_peer_dies/postgres"}
{"Action":"output","Package":"p","Test":"TestFaultCache/a_peer_dies/postgres","Output":"VIOLATION lost\n"}
{"Action":"output","Package":"p","Test":"TestFaultCache/a_peer_dies/postgres","Output":"VIOLATION twice\n"}
{"Action":"fail","Package":"p","Test":"TestFaultCache/a_peer_dies/postgres","Elapsed":3}
{"Action":"fail","Package":"p","Test":"TestFaultCache","Elapsed":5}
{"Action":"run","Package":"p","Test":"TestShardSimulation"}
{"Action":"run","Package":"p","Test":"TestShardSimulation/share_0"}
{"Action":"attr","Package":"p","Test":"TestShardSimulation/share_0","Key":"tried","Value":"40 histories"}
{"Action":"attr","Package":"p","Test":"TestShardSimulation/share_0","Key":"tried","Value":"7 splits"}
{"Action":"output","Package":"p","Test":"TestShardSimulation/share_0","Output":"    x.go:1: 40 seeds from 9000\\n"}
{"Action":"pass","Package":"p","Test":"TestShardSimulation/share_0","Elapsed":61}
{"Action":"pass","Package":"p","Test":"TestShardSimulation"}
{"Action":"run","Package":"p","Test":"TestFaultSkipped"}
{"Action":"output","Package":"p","Test":"TestFaultSkipped","Output":"    x.go:2: mounting needs root\n"}
{"Action":"skip","Package":"p","Test":"TestFaultSkipped"}
{"Action":"run","Package":"p","Test":"TestShardSimulationCatches"}
{"Action":"run","Package":"p","Test":"TestShardSimulationCatches/a_twin"}
{"Action":"pass","Package":"p","Test":"TestShardSimulationCatches/a_twin"}
{"Action":"pass","Package":"p","Test":"TestShardSimulationCatches"}
{"Time":"2026-11-26T10:00:00Z","Action":"output","Package":"p","Output":"simulated 7300 s\n"}
{"Time":"2026-11-26T12:30:00Z","Action":"fail","Package":"p"}
`

func TestTable(t *testing.T) {
	var out strings.Builder
	b, err := run(strings.NewReader(stream), &out)
	_, table, _ := strings.Cut(out.String(), "\n\n")
	want := `PART    FAULT        TRIED  VIOLATIONS
cache   a peer dies  2      2
shards  histories    40     0
shards  splits       7      0
all                  49     2

Broken variants, which the checks have to catch: 1 caught, 0 not.
1 skipped, and so not tried:
  p TestFaultSkipped: mounting needs root
`
	if diff := cmp.Diff(want, table); diff != "" {
		t.Error(diff)
	}
	if err == nil || err.Error() != "2 violations, 0 broken variants not caught" {
		t.Errorf("the error is %v", err)
	}
	if !strings.Contains(out.String(), "VIOLATION lost") {
		t.Error("the output of what failed is not shown")
	}
	page := b.page("0.0.0")
	for _, want := range []string{
		"# What was tried on 0.0.0\n", "**49 tries, 2 violations.**", "1 caught, 0 not. Simulated time: 2 hours.", "from 2026-11-26 10:00 UTC to 2026-11-26 12:30 UTC", "**Failed: p.**",
		"**1 skipped, and so not tried:**\n\n- p TestFaultSkipped: mounting needs root\n",
		"|cache|a peer dies|2|2|5s||\n", "|shards|histories|40|0|1m1s|9000 and the 40 after it|\n", "|shards|splits|7|0|0s||\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not on the page:\n%s", want, page)
		}
	}
}

func TestNothingRan(t *testing.T) {
	if _, err := run(strings.NewReader("# a package does not compile\n"), &strings.Builder{}); err == nil {
		t.Error("it ended well")
	}
}

// TestCutOff: "go test" was killed, or did not know one of its packages. What did end went well.
func TestCutOff(t *testing.T) {
	const whole = `{"Action":"start","Package":"a/p"}
{"Action":"run","Package":"a/p","Test":"TestFault"}
{"Action":"pass","Package":"a/p","Test":"TestFault"}
{"Action":"pass","Package":"a/p"}
{"Action":"start","Package":"a/empty"}
{"Action":"skip","Package":"a/empty"}
`
	for _, c := range []struct{ rest, want string }{
		{"", ""},
		{`{"Action":"start","Package":"a/q"}`, "failed: did not end: a/q"},
		{`{"Action":"start","Package":"a/q"}
{"Action":"run","Package":"a/q","Test":"TestFault"}
{"Action":"run","Package":"a/q","Test":"TestFault/one"}
{"Action":"run","Package":"a/q","Test":"TestFault/two"}
{"Action":"pass","Package":"a/q","Test":"TestFault/one"}
{"Action":"pass","Pack`, "failed: did not end: a/q, a/q TestFault/two"},
		{`{"Action":"fail","Package":"go test"}`, "failed: go test"}, // of the Makefile
	} {
		b, err := run(strings.NewReader(whole+c.rest), &strings.Builder{})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want || b == nil || strings.Contains(b.page(""), "**Failed: ") != (c.want != "") {
			t.Errorf("%s\n%q, want %q", c.rest, got, c.want)
		}
	}
}

func TestPackageFails(t *testing.T) {
	const died = `{"Action":"run","Package":"p","Test":"TestFault"}
{"Action":"pass","Package":"p","Test":"TestFault"}
{"Action":"output","Package":"p","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"p"}
`
	var out strings.Builder
	if _, err := run(strings.NewReader(died), &out); err == nil || !strings.Contains(out.String(), "timed out") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestSystem(t *testing.T) {
	for given, want := range map[string]string{"6.18.44-generic\n": "Linux 6.18", "6.18\n": "Linux 6.18", "6.18-rc1": "Linux 6.18"} {
		if got := linux(given); got != want {
			t.Errorf("%q is %q, want %q", given, got, want)
		}
	}
}
