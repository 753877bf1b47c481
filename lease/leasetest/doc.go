// Package leasetest is what every store of leases must pass, and what tests of
// leases share:
//
//   - [Run], the conformance suite: each sentence of lease.Store, lease.Roster
//     and history.Log, tried on a real store with an injected clock;
//   - [CheckLinearizable], concurrent histories against a model, and [Explain],
//     with which other parts judge theirs;
//   - [Faulty], a store that delays, drops, duplicates and answers late;
//   - [BubbleClock], a host's clock in a bubble of virtual time.
package leasetest
