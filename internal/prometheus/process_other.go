//go:build !linux

package prometheus

// NewProcessCollector collects nothing on systems without /proc.
func NewProcessCollector() Collector { return processCollector{} }

type processCollector struct{}

// Describe says nothing ahead.
func (processCollector) Describe(chan<- *Desc) {}

// Collect has nothing to tell.
func (processCollector) Collect(chan<- Metric) {}
