package redis

import (
	"context"
	"time"
)

// SetSkew adds to the server's clock, as a step of it would.
func (s *Store) SetSkew(skew func() time.Duration) { s.skew = skew }

// Settle lets the store forget that its server was just started.
func (s *Store) Settle(ctx context.Context) error {
	_, err := s.do(ctx, "DEL", s.root+"lost")
	return err
}

// Arrive is what a new connection does to a server that has run for so long.
func (s *Store) Arrive(ctx context.Context, runID string, age time.Duration) error {
	_, err := s.run(ctx, s.rest, writes, "arrive", []string{s.root + "server"}, runID, age.Microseconds())
	return err
}

// Root is what every key starts with.
func (s *Store) Root() string { return s.root }
