// Package front puts the REST API of Sawtooth or of Grid in front of a queue, so
// that a client written for them gains durability and order by another address:
//
//	POST /batches[?service_id=CIRCUIT::SERVICE]
//	GET  /batch_statuses?id=ID,ID…[&wait[=SECONDS]][&service_id=…]
//	POST /batch_statuses[?wait[=SECONDS]]                           (sawtooth)
//
// # What it promises
//
// An answer that a list of batches was taken is given only after all its batches
// are stored, each as one batch of the queue under its own id, in the order of the
// list. What was refused with a 400 was not stored. A batch
// that is given again is answered like the first time and not stored again.
//
// Bytes are as the dialect's own server writes them: names, order, indentation and
// escapes of JSON, content types, links and error codes. The words of its
// error messages are ours.
//
//	dialect        speaks                     service_id  statuses
//	sawtooth       Sawtooth's own API         optional    COMMITTED INVALID PENDING UNKNOWN
//	grid           Grid's, before Sawtooth    forbidden   the same
//	grid-splinter  Grid's, before Splinter    required    Committed Invalid Valid Pending Unknown
//
// The ordering key of a batch is its service_id, and "----" without one. To
// Sawtooth itself service_id means nothing; here it lets a client say what is
// independent.
//
//	state of the batch                          reads
//	queued submitting pending delayed unknown   PENDING
//	valid                                       PENDING; Valid with grid-splinter
//	committed                                   COMMITTED
//	invalid, cancelled                          INVALID, with the reason
//	failed                                      PENDING while its key waits for a
//	                                            person; UNKNOWN once it stepped aside
//	not in the queue, or pruned                 UNKNOWN
//
// # What it does not promise
//
// Signatures are not verified: a batch with a wrong one is stored, refused by
// the ledger, and reads INVALID. Everything else about it is checked. The rest of
// the ledger's API is not here. A batch that was pruned from the queue is new when
// it comes again: keep batches for longer than clients repeat themselves.
// One id can be in a queue once: the same batch for a second service is refused.
//
// # How it fails
//
// When the store cannot be reached, nothing was stored, and the answer is 503
// (18 in Sawtooth's codes); when it is not known whether it was, 503 (17). A
// list of more than 500 batches is stored in parts; if a later part fails, the
// first stay. Either way, sending the same list again is safe. Waiting is bounded:
// who finds no place among the waiters is answered at once with what is known.
package front
