package redis

import (
	"context"
	"time"
)

// SetSkew adds to the server's clock, as a step of it would.
func (s *Store) SetSkew(skew func() time.Duration) { s.skew = skew }

// Settle lets the store forget that its server was just started.
func (s *Store) Settle(ctx context.Context) error { return s.watches.Del(ctx, s.root+"lost").Err() }

// Root is what every key begins with.
func (s *Store) Root() string { return s.root }
