package sentinel

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/understudy-ha/understudy/internal/resp"
)

// version of Redis whose Sentinel is spoken.
const version = "7.0.15"

// command of a client. Its arguments are counted with its name: the exact number, or at
// least so many when negative.
type command struct {
	arity int
	run   func(c *conn, ctx context.Context, args []string)
	// free: before authentication; calm: also by subscribers in version 2.
	free, calm bool
}

func commandOf(name string) (command, bool) {
	switch name {
	case "ping":
		return command{arity: -1, run: (*conn).ping, calm: true}, true
	case "auth":
		return command{arity: -2, run: (*conn).authenticate, free: true}, true
	case "hello":
		return command{arity: -1, run: (*conn).hello, free: true}, true
	case "client":
		return command{arity: -2, run: (*conn).client}, true
	case "sentinel":
		return command{arity: -2, run: (*conn).sentinel}, true
	case "role":
		return command{arity: 1, run: (*conn).role}, true
	case "info":
		return command{arity: -1, run: (*conn).info}, true
	case "command":
		return command{arity: -1, run: (*conn).command}, true
	case "reset":
		return command{arity: 1, run: (*conn).reset, free: true, calm: true}, true
	case "subscribe", "psubscribe":
		return command{arity: -2, run: (*conn).subscribe, calm: true}, true
	case "unsubscribe", "punsubscribe":
		return command{arity: -1, run: (*conn).unsubscribe, calm: true}, true
	case "publish":
		return command{arity: 3, run: (*conn).publish}, true
	}
	return command{}, false
}

// handle answers a request. It is false when the client takes its leave.
func (c *conn) handle(ctx context.Context, args []string) bool {
	name := strings.ToLower(args[0])
	cmd, known := commandOf(name)
	switch {
	case name == "quit":
		c.simple("OK")
		return false
	case !known:
		c.error(unknown(args))
	case cmd.arity > 0 && len(args) != cmd.arity || len(args) < -cmd.arity:
		c.error(arity(name))
	case !c.auth && !cmd.free:
		c.error("NOAUTH Authentication required.")
	case !cmd.calm && c.out.Version != 3 && c.subscribed():
		c.error(fmt.Sprintf("ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context", name))
	default:
		cmd.run(c, ctx, args)
	}
	return true
}

func (c *conn) simple(s string) { c.answer(func(w *resp.Writer) { w.Simple(s) }) }
func (c *conn) error(s string)  { c.answer(func(w *resp.Writer) { w.Error(s) }) }

func arity(name string) string {
	return "ERR wrong number of arguments for '" + name + "' command"
}

func unknown(args []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "ERR unknown command '%.128s', with args beginning with: ", args[0])
	for _, a := range args[1:] {
		if b.Len() > 256 {
			break
		}
		fmt.Fprintf(&b, "'%.128s' ", a)
	}
	return b.String()
}

func (c *conn) ping(_ context.Context, args []string) {
	calm := c.subscribed()
	c.answer(func(w *resp.Writer) {
		text := ""
		if len(args) == 2 {
			text = args[1]
		}
		switch {
		case len(args) > 2:
			w.Error(arity("ping"))
		case calm && w.Version != 3:
			w.Bulks("pong", text)
		case len(args) == 2:
			w.Bulk(text)
		default:
			w.Simple("PONG")
		}
	})
}

func (c *conn) authenticate(_ context.Context, args []string) {
	switch cfg := c.srv.cfg; {
	case len(args) > 3:
		c.error("ERR syntax error")
	case cfg.Password == "" && len(args) == 2:
		c.error("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
	case len(args) == 2 && c.logIn("default", args[1]), len(args) == 3 && c.logIn(args[1], args[2]):
		c.simple("OK")
	default:
		c.error(wrongPass)
	}
}

const wrongPass = "WRONGPASS invalid username-password pair or user is disabled."

// logIn reports whether the password is right, and remembers it. A password alone is that of whatever user there is.
func (c *conn) logIn(user, password string) bool {
	cfg := c.srv.cfg
	if cfg.Password == "" {
		return user == "default" // who may do all without a password, as in Redis
	}
	a, b := sha256.Sum256([]byte(password)), sha256.Sum256([]byte(cfg.Password))
	ok := subtle.ConstantTimeCompare(a[:], b[:]) == 1 && (user == cfg.Username || user == "default")
	c.auth = c.auth || ok
	return ok
}

func (c *conn) hello(_ context.Context, args []string) {
	wanted := c.out.Version
	name, named := "", false
	if len(args) > 1 {
		n, err := strconv.Atoi(args[1])
		if err != nil {
			c.error("ERR Protocol version is not an integer or out of range")
			return
		}
		if n != 2 && n != 3 {
			c.error("NOPROTO unsupported protocol version")
			return
		}
		wanted = n
	}
	for i := 2; i < len(args); {
		switch option := strings.ToLower(args[i]); {
		case option == "auth" && i+2 < len(args):
			if !c.logIn(args[i+1], args[i+2]) {
				c.error(wrongPass)
				return
			}
			i += 3
		case option == "setname" && i+1 < len(args):
			name, named = args[i+1], true
			i += 2
		default:
			c.error(fmt.Sprintf("ERR Syntax error in HELLO option '%.64s'", args[i]))
			return
		}
	}
	if !c.auth {
		c.error("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
		return
	}
	if named && !c.rename(name) {
		return
	}
	c.answer(func(w *resp.Writer) {
		w.Version = wanted
		w.Map(6)
		w.Bulk("server")
		w.Bulk("redis")
		w.Bulk("version")
		w.Bulk(version)
		w.Bulk("proto")
		w.Int(int64(wanted))
		w.Bulk("id")
		w.Int(c.id)
		w.Bulk("mode")
		w.Bulk("sentinel")
		w.Bulk("modules")
		w.Array(0)
	})
}

// rename gives the connection a name, or answers why not.
func (c *conn) rename(name string) bool {
	if strings.ContainsFunc(name, func(r rune) bool { return r < '!' || r > '~' }) {
		c.error("ERR Client names cannot contain spaces, newlines or special characters.")
		return false
	}
	c.name = name
	return true
}

// client answers CLIENT, as far as clients use it when they connect.
func (c *conn) client(_ context.Context, args []string) {
	sub := strings.ToLower(args[1])
	counts := map[string]int{"setname": 3, "getname": 2, "id": 2, "setinfo": 4, "no-evict": 3, "no-touch": 3}
	count, known := counts[sub]
	switch {
	case !known:
		c.error(fmt.Sprintf("ERR unknown subcommand '%.128s'. Try CLIENT HELP.", args[1]))
	case len(args) != count:
		c.error(arity("client|" + sub))
	case sub == "setname":
		if c.rename(args[2]) {
			c.simple("OK")
		}
	case sub == "getname":
		c.answer(func(w *resp.Writer) {
			if c.name == "" {
				w.Null()
				return
			}
			w.Bulk(c.name)
		})
	case sub == "id":
		c.answer(func(w *resp.Writer) { w.Int(c.id) })
	case sub != "setinfo" && !slices.Contains([]string{"on", "off"}, strings.ToLower(args[2])):
		c.error("ERR syntax error")
	default:
		c.simple("OK")
	}
}

func (c *conn) role(context.Context, []string) {
	var names []string
	for _, m := range c.srv.masters() {
		names = append(names, m.name)
	}
	c.answer(func(w *resp.Writer) {
		w.Array(2)
		w.Bulk("sentinel")
		w.Bulks(names...)
	})
}

// command says nothing of commands; clients that ask go on without.
func (c *conn) command(_ context.Context, args []string) {
	c.answer(func(w *resp.Writer) {
		switch {
		case len(args) > 1 && strings.EqualFold(args[1], "count"):
			w.Int(0)
		case len(args) > 1 && strings.EqualFold(args[1], "docs"):
			w.Map(0)
		default:
			w.Array(0)
		}
	})
}

func (c *conn) reset(context.Context, []string) {
	c.auth, c.name = c.srv.cfg.Password == "", ""
	c.answer(func(w *resp.Writer) {
		c.channels, c.patterns = nil, nil
		w.Version = 2
		w.Simple("RESET")
	})
}

func (c *conn) publish(context.Context, []string) {
	c.error("ERR Only HELLO messages are accepted by Sentinel instances.")
}
