package doctor

import (
	"context"

	"github.com/understudy-ha/understudy/api"
	"github.com/understudy-ha/understudy/api/apitype"
	"github.com/understudy-ha/understudy/internal/attention"
	"github.com/understudy-ha/understudy/shard"
)

// checkShards finds shards without a primary, and what would keep one from failing over.
func checkShards(ctx context.Context, registry shard.Registry) (out []Finding, err error) {
	const page = 200
	total, fine := 0, 0
	for after := ""; ; {
		views, err := registry.List(ctx, after, page)
		if err != nil {
			return out, err
		}
		for _, v := range views {
			after = v.Row.Name
			s := api.ViewShard(v)
			total++
			if s.Health == string(shard.Fine) {
				fine++
			}
			out = append(out, judgeShard(s)...)
		}
		if len(views) < page {
			break
		}
	}
	if total == 0 {
		return nil, nil
	}
	return append([]Finding{well("shards", "%d of %d have a primary that its agent looks after", fine, total)}, out...), nil
}

// judgeShard says of a shard what it needs, and which node is never promoted by itself.
func judgeShard(s apitype.Shard) []Finding {
	_, needs := attention.Shard(s)
	out := findings(needs)
	for _, n := range s.Nodes {
		if n.Member && n.AgentLives && !n.Primary && n.Priority == 0 {
			out = append(out, well("shard", "%s: %s is never promoted by itself: its priority is 0", s.Name, n.Address))
		}
	}
	return out
}
