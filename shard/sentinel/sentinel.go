package sentinel

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/internal/resp"
)

// masters are all shards that have a primary, by name.
func (s *Server) masters() []master {
	var out []master
	for _, v := range s.cfg.Where.Shards() {
		if m, ok := masterOf(v, s.cfg.ID); ok {
			out = append(out, m)
		}
	}
	return out
}

func (s *Server) master(name string) (master, bool) {
	v, ok := s.cfg.Where.Shard(name)
	if !ok {
		return master{}, false
	}
	return masterOf(v, s.cfg.ID)
}

// subcommands of SENTINEL, with the number of their arguments.
func subcommand(name string) (arity int, about bool) {
	switch name {
	case "get-master-addr-by-name":
		return 3, false
	case "masters", "myid", "pending-scripts", "help":
		return 2, false
	case "master", "replicas", "slaves", "sentinels", "ckquorum", "failover":
		return 3, true
	case "is-master-down-by-addr":
		return 6, false
	case "flushconfig", "config", "debug", "info-cache", "monitor", "remove", "reset", "set", "simulate-failure":
		return -2, false
	}
	return 0, false
}

// sentinel answers SENTINEL.
func (c *conn) sentinel(ctx context.Context, args []string) {
	sub := strings.ToLower(args[1])
	count, about := subcommand(sub)
	switch {
	case count == 0:
		c.error(fmt.Sprintf("ERR unknown subcommand '%.128s'. Try SENTINEL HELP.", args[1]))
		return
	case count > 0 && len(args) != count:
		c.error(arity("sentinel|" + sub))
		return
	}
	if sub == "get-master-addr-by-name" || sub == "master" || sub == "masters" {
		c.asked = time.Now()
	}
	var m master
	if about {
		var ok bool
		if m, ok = c.srv.master(args[2]); !ok {
			c.error("ERR No such master with that name")
			return
		}
	}
	switch sub {
	case "failover":
		c.failover(ctx, m)
	case "is-master-down-by-addr":
		c.isDown(args)
	default:
		c.answerQuery(sub, args, m)
	}
}

// answerQuery answers what only looks.
func (c *conn) answerQuery(sub string, args []string, m master) {
	c.answer(func(w *resp.Writer) {
		switch sub {
		case "get-master-addr-by-name":
			if m, ok := c.srv.master(args[2]); ok && !m.down {
				w.Bulks(m.host, m.port)
				return
			}
			w.NullArray()
		case "masters":
			all := c.srv.masters()
			w.Array(len(all))
			for _, m := range all {
				fields(w, m.fields())
			}
		case "master":
			fields(w, m.fields())
		case "replicas", "slaves":
			w.Array(len(m.replicas))
			for _, r := range m.replicas {
				fields(w, m.replica(r))
			}
		case "sentinels":
			w.Array(len(m.endpoints))
			for _, e := range m.endpoints {
				fields(w, e.endpoint())
			}
		case "ckquorum":
			w.Simple(fmt.Sprintf("OK %d usable Sentinels. Quorum and failover authorization can be reached", m.usable()))
		case "myid":
			w.Bulk(c.srv.cfg.ID)
		case "pending-scripts":
			w.Array(0)
		case "help":
			help(w)
		default:
			w.Error("ERR this Sentinel is a part of Understudy, which is not configured by 'SENTINEL " + sub + "'. Use: understudy shard")
		}
	})
}

func fields(w *resp.Writer, all []field) {
	w.Map(len(all))
	for _, f := range all {
		w.Bulk(f.name)
		w.Bulk(f.value)
	}
}

// isDown answers other Sentinels, of which none can make this one vote: "*" is no leader.
func (c *conn) isDown(args []string) {
	if _, err := strconv.Atoi(args[3]); err != nil {
		c.error("ERR value is not an integer or out of range")
		return
	}
	down := int64(0)
	for _, m := range c.srv.masters() {
		if m.place == (place{args[2], args[3]}) && m.down {
			down = 1
		}
	}
	c.answer(func(w *resp.Writer) {
		w.Array(3)
		w.Int(down)
		w.Bulk("*")
		w.Int(0)
	})
}

// failover refuses, and names the command to use: clients of this port have no scopes.
func (c *conn) failover(_ context.Context, m master) {
	c.error("ERR failovers are not started from here. Use: understudy shard switchover " + m.name)
}

// info answers INFO.
func (c *conn) info(_ context.Context, args []string) {
	wanted := func(section string) bool {
		if len(args) == 1 {
			return true
		}
		for _, a := range args[1:] {
			switch strings.ToLower(a) {
			case section, "all", "default", "everything":
				return true
			}
		}
		return false
	}
	var b strings.Builder
	if wanted("server") {
		up := int64(time.Since(c.srv.started).Seconds())
		fmt.Fprintf(&b, "# Server\r\nredis_version:%s\r\nredis_mode:sentinel\r\nrun_id:%s\r\ntcp_port:%s\r\nuptime_in_seconds:%d\r\nuptime_in_days:%d\r\n\r\n",
			version, c.srv.cfg.ID, c.srv.port(), up, up/86400)
	}
	st := c.srv.Stats()
	if wanted("clients") {
		fmt.Fprintf(&b, "# Clients\r\nconnected_clients:%d\r\nmaxclients:%d\r\n\r\n", st.Conns, c.srv.cfg.MaxConns)
	}
	if wanted("stats") {
		fmt.Fprintf(&b, "# Stats\r\ntotal_connections_received:%d\r\ntotal_commands_processed:%d\r\nrejected_connections:%d\r\n\r\n", st.Accepted, st.Requests, st.Refused)
	}
	if wanted("sentinel") {
		c.srv.sentinelInfo(&b)
	}
	c.answer(func(w *resp.Writer) { w.Verbatim(b.String()) })
}

func (s *Server) sentinelInfo(b *strings.Builder) {
	all := s.masters()
	fmt.Fprintf(b, "# Sentinel\r\nsentinel_masters:%d\r\nsentinel_tilt:0\r\nsentinel_tilt_since_seconds:-1\r\nsentinel_running_scripts:0\r\nsentinel_scripts_queue_length:0\r\nsentinel_simulate_failure_flags:0\r\n", len(all))
	for i, m := range all {
		status := "ok"
		if m.down {
			status = "odown"
		}
		fmt.Fprintf(b, "master%d:name=%s,status=%s,address=%s,slaves=%d,sentinels=%d\r\n", i, m.name, status, m.place, len(m.replicas), 1+len(m.endpoints))
	}
}

func (s *Server) port() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.self.(*net.TCPAddr); ok {
		return strconv.Itoa(a.Port)
	}
	return "0"
}

func help(w *resp.Writer) {
	lines := []string{
		"SENTINEL <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
		"GET-MASTER-ADDR-BY-NAME <master-name>", "MASTERS", "MASTER <master-name>", "REPLICAS <master-name>",
		"SENTINELS <master-name>", "CKQUORUM <master-name>", "MYID", "FAILOVER <master-name>",
		"IS-MASTER-DOWN-BY-ADDR <ip> <port> <current-epoch> <runid>", "HELP",
	}
	w.Array(len(lines))
	for _, l := range lines {
		w.Simple(l)
	}
}
