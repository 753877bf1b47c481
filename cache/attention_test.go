package cache

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/understudy-ha/understudy/cache/protocol"
	"github.com/understudy-ha/understudy/cache/zmtp"
	"github.com/understudy-ha/understudy/internal/testkit/syncbuffer"
)

// journal is a log that a test reads.
type journal struct{ syncbuffer.Buffer }

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// count is how many lines have all these words.
func (j *journal) count(words ...string) (n int) {
	for line := range strings.Lines(j.String()) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			n++
		}
	}
	return n
}

func (c *cluster) view(i int) ClusterView {
	c.t.Helper()
	v, err := c.peers[i].Cluster(c.ctx())
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

// peerOf is how peer i sees peer j.
func (c *cluster) peerOf(i, j int) PeerView {
	for _, p := range c.view(i).Peers {
		if p.URL == c.members[j].URL {
			return p
		}
	}
	c.t.Fatal("no such peer")
	return PeerView{}
}

// A wrong secret is said to be one: by the peer, once in its log, and where probes ask. It is no reason for --mixed.
func TestWrongSecretIsNamed(t *testing.T) {
	var log journal
	c := newCluster(t, 3, echo, func(i int, cfg *Config) {
		cfg.Secret = []byte("a secret of the cluster")
		if i == 2 {
			cfg.Secret, cfg.Logger = []byte("a secret of peer 2 alone"), log.logger()
		}
	})
	const same = "give every peer the same secret"
	eventually(t, "the peer says why it may fetch nothing", func() bool {
		return strings.Contains(c.view(2).Unready, same) && strings.Contains(c.peerOf(2, 0).Why, same) && strings.Contains(c.peerOf(2, 1).Why, same)
	})
	eventually(t, "the others say what is wrong, and may fetch", func() bool {
		v := c.view(0)
		return strings.Contains(v.Trouble, same) && v.Unready == "" && strings.Contains(c.peerOf(0, 2).Why, same) && c.peerOf(0, 1).Why == ""
	})
	eventually(t, "the log says it", func() bool { return log.count("WARN", same) > 0 })
	if n := log.count("mixed"); n > 0 || log.count("WARN", same) > 2 {
		t.Errorf("the log advises --mixed in %d lines, and has %d warnings for two peers:\n%s", n, log.count("WARN", same), log.String())
	}
	c.get(0, "key", "value of key")
}

// A peer that is not let in knows why. Whoever listens is not dead, even where nobody listened before.
func TestWrongCurveKeyIsNamed(t *testing.T) {
	keys, wrong := []zmtp.CurveKey{zmtp.NewCurveKey(), zmtp.NewCurveKey()}, zmtp.NewCurveKey()
	c := newCluster(t, 2, echo, func(i int, cfg *Config) {
		cfg.Curve = &Curve{Key: keys[i], Peers: map[string][32]byte{cfg.Members[0].URL: keys[0].Public, cfg.Members[1].URL: keys[1].Public}}
	}).settled()
	c.peers[1].stop()
	eventually(t, "nobody listens", func() bool { return c.peerOf(0, 1).Link == "dead" })
	keys[1] = wrong // which peer 0 does not have
	c.config = func(i int, cfg *Config) {
		cfg.Curve = &Curve{Key: keys[i], Peers: map[string][32]byte{cfg.Members[0].URL: keys[0].Public, cfg.Members[1].URL: wrong.Public}}
	}
	c.start(1)
	for i := range 2 {
		eventually(t, fmt.Sprintf("peer %d says why", i), func() bool {
			p, v := c.peerOf(i, 1-i), c.view(i)
			return p.Link == "down" && p.Why != "" && strings.Contains(v.Unready, p.Why)
		})
	}
}

// A full disk ends readiness with its reason. It comes back by itself, though nobody asks meanwhile.
func TestFullDiskIsNamed(t *testing.T) {
	disk := newMemory()
	c := newCluster(t, 1, echo, func(_ int, cfg *Config) { cfg.Storage = disk }).settled()
	disk.set(0, "raise")
	if _, err := c.peers[0].Get(c.ctx(), "key", GetOptions{}); !errors.Is(err, ErrBroken) {
		t.Fatalf("a fetch in a term that is not stored: %v", err)
	}
	if v := c.view(0); !strings.Contains(v.Unready, errDisk.Error()) {
		t.Errorf("unready because of %q", v.Unready)
	}
	disk.set(0, "")
	eventually(t, "it is ready again", func() bool { v := c.view(0); return v.Unready == "" && v.Trouble == "" })
}

// A folder that is empty though the others remember what was in it is noticed. Nothing rests on it until what it has
// forgotten has passed.
func TestLostStorageIsNoticed(t *testing.T) {
	var log journal
	disks := []*memory{newMemory(), newMemory(), newMemory()}
	c := newCluster(t, 3, echo, func(i int, cfg *Config) {
		cfg.Storage, cfg.Timings = disks[i], protocol.Timings{Skew: 1}
		if i == 2 {
			cfg.Logger = log.logger()
		}
	}).settled()
	c.get(2, "key", "value of key")
	c.peers[2].stop()
	c.start(2)
	c.settled()
	if n := log.count("is gone"); n > 0 {
		t.Fatalf("%d lines of a restart with all that was stored", n)
	}
	c.peers[2].stop()
	disks[2] = newMemory()
	c.start(2)
	eventually(t, "the log says that the data is gone", func() bool { return log.count("WARN", "the data of this peer is gone", "volume") == 1 })
	if _, err := c.peers[2].Get(c.ctx(), "new", GetOptions{}); err != nil && !errors.Is(err, ErrBroken) {
		t.Errorf("a fetch meanwhile: %v", err)
	}
	eventually(t, "it takes part again", func() bool { v := c.view(2); return v.Unready == "" && !v.Abstaining })
	c.get(2, "new", "value of new")
}
