package monitortest

import "testing"

func TestOutages(t *testing.T) {
	for seed := range uint64(5) {
		_, rig := reference(t)
		CheckOutages(t, rig, Outages{Seed: seed})
	}
}
