package zmtp

import (
	"errors"
	"fmt"
	"io"
)

// Security is a mechanism that protects connections: nil for none (NULL), or a [Curve].
type Security interface {
	// resolve checks the keys, and completes them.
	resolve(server bool) (Security, error)
	mechanism() string
	// begin makes one side of a handshake.
	begin(server bool, own Kind) handshake
}

// handshake is one side of a mechanism, as a machine: it is given the commands of the
// other side, one after the other, and says what to answer.
type handshake interface {
	// first is what to send before anything has come; nil for the side that waits.
	first() (command []byte)
	// next takes a command. An error that is a [verdict] is told to the other side.
	next(command []byte) (answer []byte, done bool, err error)
	// result is valid when done.
	result() result
}

// result is what a handshake has found out.
type result struct {
	kind   Kind      // of the other side
	key    *[32]byte // CURVE: long-term key of the other side
	sealer *sealer   // CURVE: what comes from now on is sealed
}

// verdict is an error whose reason is sent to the other side.
type verdict struct {
	error
	reason string
}

func (v verdict) Unwrap() error { return v.error }

// fit checks what the other side says about itself.
func fit(own, theirs Kind) error {
	if !own.accepts(theirs) {
		return verdict{fmt.Errorf("%w: the peer is %.32q, this side %q", ErrKind, theirs, own), "Invalid socket type"}
	}
	return nil
}

// expect takes a command that must have this name. An ERROR in its place is the
// other side's refusal.
func expect(name string, command []byte) ([]byte, error) {
	got, data, err := parseCommand(command)
	switch {
	case err != nil:
		return nil, err
	case got == "ERROR":
		return nil, refusal(data)
	case got != name:
		return nil, fmt.Errorf("%w: the command %q came; %s was due", ErrProtocol, got, name)
	}
	return data, nil
}

// null is the mechanism NULL: each side says what it is.
type null struct{}

func (n null) resolve(bool) (Security, error) { return n, nil }
func (null) mechanism() string                { return "NULL" }

func (null) begin(server bool, own Kind) handshake {
	return &nullHandshake{server: server, own: own}
}

type nullHandshake struct {
	server      bool
	own, theirs Kind
}

func (h *nullHandshake) ready() []byte {
	return appendMetadata(appendCommand(nil, "READY"), h.own)
}

func (h *nullHandshake) first() []byte {
	if h.server {
		return nil
	}
	return h.ready()
}

func (h *nullHandshake) next(command []byte) ([]byte, bool, error) {
	data, err := expect("READY", command)
	if err != nil {
		return nil, false, err
	}
	if h.theirs, err = parseMetadata(data); err != nil {
		return nil, false, err
	}
	if err := fit(h.own, h.theirs); err != nil {
		return nil, false, err
	}
	if h.server {
		return h.ready(), true, nil
	}
	return nil, true, nil
}

func (h *nullHandshake) result() result { return result{kind: h.theirs} }

// exchangeHandshake carries a handshake out on a connection that has a deadline.
func (c *Conn) exchangeHandshake(server bool) error {
	mechanism := c.cfg.Security.mechanism()
	if _, err := c.nc.Write(greeting(mechanism, server && mechanism != "NULL")); err != nil {
		return err
	}
	g, err := c.readGreeting()
	if err != nil {
		return err
	}
	if c.minor, err = readGreeting(g, mechanism); err != nil {
		return err
	}
	h := c.cfg.Security.begin(server, c.cfg.Kind)
	command, done := h.first(), false
	for {
		if command != nil {
			if _, err := c.nc.Write(appendFrame(nil, flagCommand, command)); err != nil {
				return err
			}
		}
		if done {
			c.peer = h.result()
			return nil
		}
		in, err := c.readCommand()
		if err != nil {
			return err
		}
		command, done, err = h.next(in)
		if v, ok := errors.AsType[verdict](err); ok && server {
			// The connection has ended; whether the reason arrives is not important.
			_, _ = c.nc.Write(appendFrame(nil, flagCommand, errorCommand(v.reason)))
			return v.error
		}
		if err != nil {
			return err
		}
	}
}

func (c *Conn) readGreeting() ([]byte, error) {
	for {
		if err := checkGreeting(c.in.peek()); err != nil {
			return nil, err
		}
		if g, ok := c.in.takeBytes(greetingSize); ok {
			return g, nil
		}
		if err := c.readHandshake(); err != nil {
			return nil, err
		}
	}
}

// readHandshake reads more of a handshake.
func (c *Conn) readHandshake() error {
	_, err := c.in.fill(c.nc)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the peer closed within it; does it have another mechanism, another key, or too many connections? (%w)", err)
	}
	return err
}

func (c *Conn) readCommand() ([]byte, error) {
	for {
		f, n, err := parseFrame(c.in.peek(), maxHandshake, maxHandshake)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			c.in.takeBytes(n)
			if f.flags&flagCommand == 0 {
				return nil, fmt.Errorf("%w: a message came before the end of the handshake", ErrProtocol)
			}
			return f.body, nil
		}
		if err := c.readHandshake(); err != nil {
			return nil, err
		}
	}
}
