package resolve

import "time"

// reply is what a server says of a role, of a shard, or that something is wrong: what of it
// matters here.
type reply struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`

	Primaries []struct {
		ID          string `json:"id"`
		Name        string `json:"name"`
		Address     string `json:"address"`
		Term        int64  `json:"term"`
		ExpiresInMS int64  `json:"expires_in_ms"`
	} `json:"primaries"`

	Primary *struct {
		NodeID  string `json:"node_id"`
		Address string `json:"address"`
		Epoch   int64  `json:"epoch"`
	} `json:"primary"`
	Plan    *struct{} `json:"plan"`
	Request *struct{} `json:"request"`
	LeftMS  int64     `json:"left_ms"`
	Epoch   int64     `json:"epoch"`
	Nodes   []struct {
		ID         string `json:"node_id"`
		Address    string `json:"address"`
		Role       string `json:"role"`
		IsPrimary  bool   `json:"is_primary"`
		Condition  string `json:"condition"`
		AgentLives bool   `json:"agent_lives"`
		Fits       bool   `json:"same_lineage"`
		LinkUp     *bool  `json:"link_up"`
	} `json:"nodes"`
}

// answer makes an answer of it. The server's knowledge was age old, rounded down, when it
// answered.
func (s reply) answer(n Name, age, most time.Duration) (Answer, error) {
	a := Answer{Name: n, TTL: most}
	if n.Kind == Role {
		for _, p := range s.Primaries {
			a.Holders = append(a.Holders, Holder{p.ID, p.Name, p.Address, p.Term})
			a.TTL = min(a.TTL, time.Duration(p.ExpiresInMS)*time.Millisecond)
		}
		return a.checked(false, 0)
	}
	age += time.Second // it was rounded down
	if age >= most {
		return Answer{Name: n}, stale(n, age)
	}
	a.TTL = most - age
	if n.Kind == Primary && s.Primary != nil {
		a.Holders = []Holder{{ID: s.Primary.NodeID, Address: s.Primary.Address, Term: s.Primary.Epoch}}
		a.TTL = max(0, min(a.TTL, time.Duration(s.LeftMS)*time.Millisecond-age))
		if s.Plan != nil || s.Request != nil {
			a.TTL = 0
		}
	}
	if n.Kind == Replica {
		for _, r := range s.Nodes {
			if r.Role == "replica" && !r.IsPrimary && r.Condition == "up" && r.AgentLives && r.Fits && r.LinkUp != nil && *r.LinkUp {
				a.Holders = append(a.Holders, Holder{ID: r.ID, Address: r.Address})
			}
		}
		a.TTL = min(a.TTL, time.Second)
	}
	return a.checked(false, age)
}
