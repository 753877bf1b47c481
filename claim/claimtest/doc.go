// Package claimtest is what every store of claims must pass, and what tests of
// claims share:
//
//   - [Run], the conformance suite: each sentence of claim.KeyTable, tried on a real
//     store with an injected clock;
//   - [CheckLinearizable], concurrent histories of one key against a model, in
//     real time;
//   - [Memory], the table in memory, small enough to be believed, for tests in
//     bubbles of virtual time.
//
// Memory promises what claim.KeyTable promises, as long as the store of sessions
// under it does, and nothing about speed or size: it looks at every key in every call.
package claimtest
