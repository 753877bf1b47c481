package zmtp

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
)

func TestZ85(t *testing.T) {
	// The server's key pair in the manual page zmq_curve.
	const text = "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6"
	key, err := DecodeKey(text)
	if err != nil {
		t.Fatal(err)
	}
	if got := EncodeKey(key); got != text {
		t.Errorf("%s, want %s", got, text)
	}
	if got, want := fmt.Sprintf("%x", key), "8e0bdd697628b91d8f245587ee95c5b04d48963f79259877b49cd9063aead3b7"; got != want {
		t.Errorf("decoded to %s, want %s", got, want)
	}
	whole, err := Curve{Secret: key}.resolve(true)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := EncodeKey(whole.(Curve).public), "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"; got != want {
		t.Errorf("the public key is %s, want %s", got, want)
	}
	for _, bad := range []string{"", text[:39], text + "0", strings.Repeat("#", 40), strings.Repeat("~", 40), text[:39] + "\""} {
		if _, err := DecodeKey(bad); !errors.Is(err, ErrConfig) {
			t.Errorf("DecodeKey(%q): %v", bad, err)
		} else if len(bad) > 1 && strings.Contains(err.Error(), bad) {
			t.Errorf("the error shows the key: %v", err)
		}
	}
}

func TestKeysAreNotShown(t *testing.T) {
	k := NewCurveKey()
	cfg := Config{Kind: ROUTER, Security: Curve{Secret: k.Secret, public: k.Public}}
	var log strings.Builder
	l := slog.New(slog.NewTextHandler(&log, nil))
	l.Info("x", "cfg", cfg, "key", k, "curve", cfg.Security)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "cfg", cfg.Security, "key", k)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d", "%q"} {
		fmt.Fprintf(&log, verb+verb+verb+verb, cfg, &cfg, k, &k)
		fmt.Fprintf(&log, verb, cfg.Security)
	}
	shown := log.String()
	for _, form := range []string{
		EncodeKey(k.Secret), fmt.Sprintf("%x", k.Secret), fmt.Sprintf("%d", k.Secret[:4])[1:10], fmt.Sprintf("%q", k.Secret),
		strings.Trim(fmt.Sprintf("%#v", k.Secret[:3]), "[]byte{}"),
	} {
		if strings.Contains(shown, form) {
			t.Errorf("%q is shown", form)
		}
	}
}

// pair makes the two sides' mechanisms.
func pair() (server, client Curve) {
	s, c := NewCurveKey(), NewCurveKey()
	server = Curve{Secret: s.Secret, Allow: AllowKeys(NewCurveKey().Public, c.Public)}
	client = Curve{public: c.Public, Secret: c.Secret, ServerKey: s.Public}
	return server, client
}

func TestCurveEcho(t *testing.T) {
	server, client := pair()
	l := listen(t, Config{Kind: ROUTER, Security: server, Handler: Handler{
		Message: func(c *Conn, m Message) {
			if *c.peer.key != client.public {
				t.Error("another key")
			}
			c.Send(m)
		},
	}})
	got, up := make(chan Message, 1), make(chan *Conn, 1)
	d := dial(t, l.Addr(), Config{Kind: DEALER, Security: client, Handler: Handler{
		Connected: func(c *Conn) { up <- c },
		Message:   func(_ *Conn, m Message) { got <- clone(m) },
	}})
	if key := recv(t, "connection", up).peer.key; *key != client.ServerKey {
		t.Error("another server key")
	}
	for _, m := range []Message{text("one"), text("a", "", "c"), {{}, make([]byte, 3_000_000)}, text("")} {
		d.Send(m)
		same(t, m, recv(t, "answer", got))
	}
}

func TestCurvePubSub(t *testing.T) {
	server, client := pair()
	subs := make(chan string, 10)
	l := listen(t, Config{Kind: PUB, Security: server, Handler: Handler{
		Subscribed: func(_ *Conn, p []byte, on bool) { subs <- string(p) },
	}})
	got := make(chan Message, 1)
	dial(t, l.Addr(), Config{Kind: SUB, Security: client, Subscribe: [][]byte{[]byte("a")}, Handler: Handler{
		Message: func(_ *Conn, m Message) { got <- clone(m) },
	}})
	recv(t, "subscription", subs)
	l.Publish(text("b", "1"))
	l.Publish(text("a", "2"))
	same(t, text("a", "2"), recv(t, "publication", got))
}

func TestCurveRefuses(t *testing.T) {
	server, client := pair()
	for name, c := range map[string]struct {
		change func(s, c *Curve)
		want   error
	}{
		"client not allowed":   {func(s, _ *Curve) { s.Allow = AllowKeys(s.Secret) }, ErrRefused},
		"nobody is allowed":    {func(s, _ *Curve) { s.Allow = nil }, ErrRefused},
		"another server":       {func(_, c *Curve) { c.ServerKey = NewCurveKey().Public }, io.EOF},
		"client without CURVE": {nil, ErrMechanism},
	} {
		t.Run(name, func(t *testing.T) {
			s, k := server, client
			var security Security
			if c.change != nil {
				c.change(&s, &k)
				security = k
			}
			up := make(chan *Conn, 10)
			l := listen(t, Config{Kind: ROUTER, Security: s, Handler: Handler{Connected: func(c *Conn) { up <- c }}})
			failed := make(chan error, 1000)
			dial(t, l.Addr(), Config{Kind: DEALER, Security: security, Handler: Handler{
				Connected: func(c *Conn) { up <- c },
				Failed:    func(_ string, err error) { failed <- err },
			}})
			if err := recv(t, "failure", failed); !errors.Is(err, c.want) {
				t.Errorf("failed with %v, want %v", err, c.want)
			}
			eventually(t, "counted", func() bool { return l.Failed() > 0 })
			if len(up) > 0 {
				t.Error("Connected was called")
			}
		})
	}
}

func TestCurveConfig(t *testing.T) {
	k := NewCurveKey()
	for name, c := range map[string]Curve{
		"no secret":     {},
		"no server key": {Secret: k.Secret},
	} {
		if _, err := Dial("tcp://127.0.0.1:1", Config{Kind: SUB, Security: c}); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
