package checks

import (
	"testing"

	"github.com/understudy-ha/understudy/monitor/monitortest"
)

func TestOutages(t *testing.T) {
	for seed := range uint64(5) {
		_, rig := reference(t)
		monitortest.CheckOutages(t, rig, monitortest.Outages{Seed: seed})
	}
}
