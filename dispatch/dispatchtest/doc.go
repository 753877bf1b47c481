// Package dispatchtest is what every store of queues must pass, and what tests of
// queues share:
//
//   - [Run], the conformance suite: each sentence of dispatch.Queue and
//     dispatch.Admin, tried on a real store with an injected clock;
//   - [CheckOrder], concurrent dispatchers and enqueuers, in real time, whose
//     history is judged key by key: first in first out, one in flight, nothing
//     lost, nothing again once it has ended;
//
// Package internal/memstore/queues is the model that the stores are compared with: queues in memory, small enough to be believed.
package dispatchtest
