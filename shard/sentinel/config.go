package sentinel

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"time"

	"github.com/understudy-ha/understudy/lease"
	"github.com/understudy-ha/understudy/shard"
	"github.com/understudy-ha/understudy/shard/catalog"
)

// Config of a server.
type Config struct {
	// Where the shards are. Required.
	Where catalog.Views
	// Password that clients must give; "" asks for none. Username is that of AUTH with two
	// arguments. Default "default".
	Password, Username string
	// ID of this endpoint, 40 hexadecimal digits: an agent's is its node's, by which it is left out of SENTINEL
	// SENTINELS. Default random.
	ID string
	// MaxConns is how many clients may be connected at once. Default 1000.
	MaxConns int
	// MaxOutput is how many bytes may wait for a subscriber that does not read, before it is
	// disconnected. Default 256 KiB.
	MaxOutput int
	// Idle is how long a client that is no subscriber may say nothing. Default 10 min.
	Idle time.Duration
	// Logger; nil is silent.
	Logger *slog.Logger
}

// Validate returns an error that wraps [lease.ErrInvalid].
func (c Config) Validate() error {
	switch {
	case c.Where == nil:
		return fmt.Errorf("%w: a Sentinel endpoint needs to know where the shards are", lease.ErrInvalid)
	case c.MaxConns < 0 || c.MaxOutput < 0 || c.Idle < 0:
		return fmt.Errorf("%w: limits of a Sentinel endpoint cannot be negative", lease.ErrInvalid)
	case c.Password == "" && c.Username != "":
		return fmt.Errorf("%w: a Sentinel endpoint with a user name needs a password", lease.ErrInvalid)
	}
	if c.ID != "" {
		return shard.ValidateNodeID(c.ID)
	}
	return nil
}

func (c Config) withDefaults() Config {
	c.Username = cmp.Or(c.Username, "default")
	c.MaxConns = cmp.Or(c.MaxConns, 1000)
	c.MaxOutput = cmp.Or(c.MaxOutput, 256<<10)
	c.Idle = cmp.Or(c.Idle, 10*time.Minute)
	if c.ID == "" {
		c.ID = newID()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func newID() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}
