// Package monitortest is what every store of the monitor must pass, and what
// tests of the monitor share:
//
//   - [Run], the conformance suite: each sentence of monitor.Store, tried on a real
//     store with an injected clock;
//   - [CheckOutages], many goroutines that beat, judge and apply at once, in real
//     time, whose notices and stored beats are judged source by source: one ONSET and
//     one ABATED for each outage, in turn, and none for a source that beat in time;
//   - [Reference], the table in memory, small enough to be believed, for tests in
//     bubbles of virtual time.
//
// Reference promises what monitor.Store promises, and nothing about speed or size: it
// looks at every source in most calls. It keeps nothing across restarts.
package monitortest
