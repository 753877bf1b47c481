// Package dispatchtest is what every store of queues must pass, and what tests of
// queues share:
//
//   - [Run], the conformance suite: each sentence of dispatch.Queue and
//     dispatch.Admin, tried on a real store with an injected clock;
//   - [CheckOrder], concurrent dispatchers and enqueuers, in real time, whose
//     history is judged key by key: first in first out, one in flight, nothing
//     lost, nothing again once it has ended;
//   - [Memory], queues in memory, small enough to be believed, for tests in
//     bubbles of virtual time.
//
// Memory promises what the ports promise, as long as the store of sessions under
// it does, and nothing about speed or size: it looks at every message in every call.
package dispatchtest
