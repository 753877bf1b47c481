package main

import (
	"slices"
	"time"
)

// sample is a set of durations.
type sample []time.Duration

// quantile returns the smallest duration that at least the fraction q of the
// sample does not exceed: with 100 of them, 0.99 is the second largest.
func (s sample) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	i := int(q*float64(len(sorted)) + 0.999999)
	return sorted[min(max(i, 1), len(sorted))-1]
}

func (s sample) median() time.Duration { return s.quantile(0.5) }
func (s sample) p99() time.Duration    { return s.quantile(0.99) }

func (s sample) max() time.Duration {
	if len(s) == 0 {
		return 0
	}
	return slices.Max(s)
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
