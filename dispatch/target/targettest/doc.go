// Package targettest has stand-ins for the targets of package target, strict about
// bytes; the ledgers do what real nodes (Sawtooth 1.2.6, Splinter 0.6.14) were seen to do:
//
//   - [Sink], a receiver of webhooks;
//   - [Sawtooth], the part of the Sawtooth REST API that takes batches;
//   - [Scabbard], that of a Splinter node;
//   - [Signer], which makes really signed batches for both.
//
// Each is an http.Handler, to be used in the process of a test or in one of its own.
// Each records the effects that it carried out, so that a judge can count
// what was lost, doubled or out of order, and takes a [Fault] for every request: to be
// slow, to drop its answer before or after the effect, to answer any
// status, half a body, something that is no JSON, or never.
//
// They forget as the real ones do: Sawtooth an invalid batch after 600 s and
// everything undecided at a restart, Scabbard all but the last 100 batches of a
// service and everything but its receipts at a restart. They leave batches undecided for ever
// as the real ones do: Sawtooth one that depends on an invalid transaction, has a committed one, or has none;
// Scabbard one of an unknown family, one that was executed while the peer was down, and an
// invalid one at a service that does not coordinate. Sawtooth ignores a batch that it has, while Scabbard
// carries it out once more, and its circuit is then lost.
//
// What they do not have: blocks, consensus, state. A batch is carried out
// when [Sawtooth.Commit] or [Scabbard.Commit] says so, after [Scabbard].Takes, or at once.
package targettest
