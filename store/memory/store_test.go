package memory_test

import (
	"testing"

	"github.com/understudy-ha/understudy/lease/leasetest"
	"github.com/understudy-ha/understudy/store"
)

func TestConformance(t *testing.T) {
	leasetest.Run(t, func(*testing.T) *leasetest.Harness {
		s, step := stepped()
		return &leasetest.Harness{Open: func(*testing.T) store.Store { return s }, Step: step}
	})
}
