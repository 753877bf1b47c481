package protocol

import (
	"fmt"
	"slices"
	"strings"
)

// wanted is the configuration that a change asks for.
func (c *council) wanted(in Change) (Config, error) {
	now := c.state.Config
	want := Config{Number: now.Number + 1, Members: slices.Clone(now.Members)}
	switch {
	case c.run != nil:
		return Config{}, fmt.Errorf("cache: a change is under way on this peer: wait for its end")
	case (in.Add == nil) == (in.Remove == ""):
		return Config{}, fmt.Errorf("cache: a change adds one member or removes one")
	case now.Number == 0 || !now.Has(c.self):
		return Config{}, fmt.Errorf("cache: %s is not a member: ask a member", c.self)
	case !c.keeps:
		return Config{}, fmt.Errorf("cache: %s has no storage and takes no part in changes of the members: ask a member that has", c.self)
	case in.Add != nil:
		if i := now.index(in.Add.URL); i >= 0 && now.Members[i] == *in.Add {
			return Config{}, fmt.Errorf("cache: %s is a member already", in.Add.URL)
		} else if i >= 0 {
			return Config{}, fmt.Errorf("cache: %s is a member already, with api %s: remove it first", in.Add.URL, now.Members[i].API)
		}
		want.Members = NewConfig(append(want.Members, *in.Add)).Members
		return want, want.Validate()
	case !now.Has(in.Remove):
		return Config{}, fmt.Errorf("cache: %s is not a member", in.Remove)
	case len(now.Members) == 1:
		return Config{}, fmt.Errorf("cache: %s is the last member and cannot be removed: stop it instead", in.Remove)
	}
	i := now.index(in.Remove)
	want.Members = slices.Delete(want.Members, i, i+1)
	return want, nil
}

// satisfied reports whether a configuration has what the change asked for.
func (r *proposal) satisfied(config Config) bool {
	if r.change.Add != nil {
		return slices.Contains(config.Members, *r.change.Add)
	}
	return !config.Has(r.change.Remove)
}

// follows reports whether a configuration may come after the one in force.
func (c *council) follows(next Config) bool {
	return next.Number == c.state.Config.Number+1 && proper(next) && len(changes(c.state.Config, next)) == 1
}

// proper reports whether somebody else's configuration is one.
func proper(c Config) bool {
	return c.Number > 0 && c.Number <= MaxUint && c.Validate() == nil &&
		slices.Equal(c.Members, NewConfig(c.Members).Members)
}

// changes are the members of one of two configurations.
func changes(old, next Config) []Member {
	only := func(a, b Config) (out []Member) {
		for _, m := range a.Members {
			if !slices.Contains(b.Members, m) {
				out = append(out, m)
			}
		}
		return out
	}
	return append(only(old, next), only(next, old)...)
}

// difference says in words what one step changed.
func difference(old, next Config) string {
	var words []string
	for _, m := range changes(old, next) {
		word := "removes "
		if next.Has(m.URL) {
			word = "adds "
		}
		words = append(words, word+m.URL)
	}
	return strings.Join(words, ", ")
}

// outcome says why a change did not come about in time.
func (c *council) outcome() string {
	r, members := c.run, c.state.Config
	var b strings.Builder
	fmt.Fprintf(&b, "cache: no majority of configuration %d agreed in time: %d of %d members are needed", members.Number, members.Majority(), len(members.Members))
	if r.tries == 0 {
		fmt.Fprintf(&b, "; it has not been in force here for %v, and none was asked", c.settle)
		return b.String()
	}
	for _, m := range members.Members {
		s, greeted := c.known[m.URL]
		switch {
		case m.URL == c.self:
		case r.strange[m.URL]:
			fmt.Fprintf(&b, "; %s has other members under this number: all peers must start with the same", m.URL)
		case greeted && !s.keeps:
			fmt.Fprintf(&b, "; %s has no storage and takes no part", m.URL)
		case !r.heard[m.URL]:
			fmt.Fprintf(&b, "; %s did not answer", m.URL)
		}
	}
	if r.seen > r.ballot {
		b.WriteString("; another proposal stands against it")
	}
	if r.offered {
		b.WriteString("; the change may still happen: `understudy cache peers` shows the members in force")
	}
	return b.String()
}
