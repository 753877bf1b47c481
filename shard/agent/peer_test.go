package agent

import (
	"testing"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// While the primary is probed again, what the probe before found is reported, as old as it is.
func TestProbeSoonLeavesTheOpinion(t *testing.T) {
	p := &peerProbe{opinion: shard.Opinion{Of: "a", Reachability: shard.TimedOut}, unattended: []shard.Opinion{{Of: "b"}}, probedAt: time.Hour}
	p.soon()
	now := time.Hour + time.Second
	if own, other := p.current(now), p.currentUnattended(now); own.Age != time.Second || other[0].Age != time.Second {
		t.Errorf("opinions formed a second ago are reported as %v and %v old", own.Age, other[0].Age)
	}
}
