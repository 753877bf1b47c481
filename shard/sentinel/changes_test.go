package sentinel

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/understudy-ha/understudy/shard"
)

func id(n int) string { return fmt.Sprintf("%040x", n) }

// picture is a view of the shard "s" in words: the number of the primary, and a letter for each
// node: + well, - silent, / its link is down, ! its agent says that it is down.
func picture(primary int, nodes string) shard.View {
	v := shard.View{Row: shard.Row{Name: "s", Primary: id(primary), PrimaryEpoch: int64(primary)}}
	for i, state := range nodes {
		n := i + 1
		r := shard.Record{
			ID: id(n), Address: fmt.Sprintf("h%d:%d", n, n), Role: shard.Replica, PrimaryID: id(primary), Condition: shard.Up,
			Synced: true, Timeout: time.Second, Run: fmt.Sprint("run", n), Link: &shard.Upstream{Up: state != '/'},
		}
		if n == primary {
			r.Role, r.PrimaryID, r.Link = shard.Primary, "", nil
		}
		switch state {
		case '-':
			r.Age = time.Hour
		case '!':
			r.Condition = shard.Down
		}
		v.Nodes = append(v.Nodes, r)
		v.Row.Members = append(v.Row.Members, shard.Member{ID: r.ID, Address: r.Address})
	}
	return v
}

func plan(v shard.View, p shard.Phase) shard.View {
	v.Row.Plan = &shard.Plan{Epoch: 9, Phase: p, Kind: shard.Failover}
	return v
}

func switchover(v shard.View, p shard.Phase) shard.View {
	v = plan(v, p)
	v.Row.Plan.Kind = shard.Switchover
	return v
}

func restarted(v shard.View, n int) shard.View {
	v.Nodes[n-1].Run += " again"
	return v
}

func TestChanges(t *testing.T) {
	for _, c := range []struct {
		name  string
		views []shard.View
		want  []string // of each view after the first
	}{
		{"nothing", []shard.View{picture(1, "++"), picture(1, "++")}, []string{""}},
		{"failover", []shard.View{
			picture(1, "+++"), picture(1, "!++"), plan(picture(1, "!++"), shard.Detaching), plan(picture(2, "-+/"), shard.Following), picture(2, "-++"), picture(2, "+++"),
		}, []string{
			"+sdown master s h1 1; +odown master s h1 1 #quorum 1/1",
			"+new-epoch 9; +try-failover master s h1 1",
			"+promoted-slave slave h2:2 h2 2 @ s h2 2; +failover-end master s h1 1; +switch-master s h1 1 h2 2; " +
				"+slave slave h1:1 h1 1 @ s h2 2; +sdown slave h1:1 h1 1 @ s h2 2; +slave slave h3:3 h3 3 @ s h2 2",
			"+slave-reconf-done slave h3:3 h3 3 @ s h2 2; +replica-reconf-done slave h3:3 h3 3 @ s h2 2",
			"-sdown slave h1:1 h1 1 @ s h2 2; +slave-reconf-done slave h1:1 h1 1 @ s h2 2; +replica-reconf-done slave h1:1 h1 1 @ s h2 2",
		}},
		{"the successor is dead before anybody was told", []shard.View{
			picture(1, "+++"), plan(picture(1, "!++"), shard.Promoting), picture(2, "-!+"), picture(3, "--+"),
		}, []string{
			"+new-epoch 9; +try-failover master s h1 1; +sdown master s h1 1; +odown master s h1 1 #quorum 1/1",
			"-failover-abort-no-good-slave master s h1 1; +slave slave h1:1 h1 1 @ s h2 2; +sdown slave h1:1 h1 1 @ s h2 2",
			"+switch-master s h1 1 h3 3; +slave slave h1:1 h1 1 @ s h3 3; +sdown slave h1:1 h1 1 @ s h3 3; +slave slave h2:2 h2 2 @ s h3 3; +sdown slave h2:2 h2 2 @ s h3 3",
		}},
		{"it comes back", []shard.View{picture(1, "!+"), restarted(picture(1, "++"), 1)}, []string{
			"-sdown master s h1 1; -odown master s h1 1; +reboot master s h1 1",
		}},
		{"a switchover keeps its primary until the last", []shard.View{
			picture(1, "++"), plan(picture(1, "++"), shard.Pausing), plan(picture(1, "++"), shard.Catching), plan(picture(2, "++"), shard.Following),
		}, []string{
			"+new-epoch 9; +try-failover master s h1 1", "",
			"+promoted-slave slave h2:2 h2 2 @ s h2 2; +failover-end master s h1 1; +switch-master s h1 1 h2 2; " +
				"+slave slave h1:1 h1 1 @ s h2 2; +slave-reconf-done slave h1:1 h1 1 @ s h2 2; +replica-reconf-done slave h1:1 h1 1 @ s h2 2",
		}},
		{"a switchover does not call its primary down", []shard.View{
			picture(1, "++"), switchover(picture(1, "++"), shard.Fencing), switchover(picture(1, "++"), shard.Promoting), switchover(picture(2, "++"), shard.Following),
		}, []string{
			"+new-epoch 9; +try-failover master s h1 1", "",
			"+promoted-slave slave h2:2 h2 2 @ s h2 2; +failover-end master s h1 1; +switch-master s h1 1 h2 2; " +
				"+slave slave h1:1 h1 1 @ s h2 2; +slave-reconf-done slave h1:1 h1 1 @ s h2 2; +replica-reconf-done slave h1:1 h1 1 @ s h2 2",
		}},
		{"a switchover finds its primary dead", []shard.View{
			picture(1, "++"), switchover(picture(1, "++"), shard.Fencing), plan(picture(1, "!+"), shard.Promoting), plan(picture(2, "-+"), shard.Following),
		}, []string{
			"+new-epoch 9; +try-failover master s h1 1", "+sdown master s h1 1; +odown master s h1 1 #quorum 1/1",
			"+promoted-slave slave h2:2 h2 2 @ s h2 2; +failover-end master s h1 1; +switch-master s h1 1 h2 2; " +
				"+slave slave h1:1 h1 1 @ s h2 2; +sdown slave h1:1 h1 1 @ s h2 2",
		}},
		{"a replica is restarted, and one is new", []shard.View{picture(1, "++"), restarted(picture(1, "++/"), 2)}, []string{
			"+reboot slave h2:2 h2 2 @ s h1 1; +slave slave h3:3 h3 3 @ s h1 1",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var known *announced
			for i, v := range c.views {
				m, ok := masterOf(v, "")
				if !ok {
					t.Fatal("no master")
				}
				now, messages := changes(known, m)
				known = &now
				if i == 0 {
					continue
				}
				var got []string
				for _, m := range messages {
					got = append(got, m.channel+" "+m.text)
				}
				if d := cmp.Diff(c.want[i-1], strings.Join(got, "; ")); d != "" {
					t.Errorf("step %d (-want +got):\n%s", i, d)
				}
			}
		})
	}
}

func TestMasterOf(t *testing.T) {
	v := picture(1, "++")
	v.Row.Primary = ""
	if _, ok := masterOf(v, ""); ok {
		t.Error("a shard without a primary is shown")
	}
	v = picture(1, "++")
	v.Nodes = v.Nodes[1:]
	if m, ok := masterOf(v, ""); !ok || m.place != (place{"h1", "1"}) || m.down {
		t.Errorf("the primary's record is gone: %+v, %t", m.place, ok)
	}
	v = picture(1, "+++")
	v.Nodes[1].Address = "two words:6379"
	v.Row.Members = v.Row.Members[:1]
	v.Nodes[2].Role = shard.Primary
	if m, _ := masterOf(v, ""); len(m.replicas) != 0 {
		t.Errorf("replicas %+v", m.replicas)
	}
	v.Nodes[0].Announced = "x y:1"
	if _, ok := masterOf(v, ""); ok {
		t.Error("an address of two words is shown")
	}
}
