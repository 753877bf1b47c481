// Package monitortest is the conformance suite that every store of the monitor must pass:
//
//   - [Run] tests each sentence of monitor.Store on a real
//     store with an injected clock;
//   - [CheckOutages] runs many goroutines that send heartbeats, evaluate and apply changes at once, in real
//     time. It checks notifications and stored heartbeats source by source: one ONSET and
//     one ABATED for each outage, in turn, and none for a source whose heartbeats were in time.
//
// The store in memory, internal/memstore/checks, states the same rules as briefly as possible.
package monitortest
