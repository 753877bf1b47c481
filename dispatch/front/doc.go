// Package front puts the REST API of Sawtooth or of Grid in front of a queue, so
// that a client written for them gains durability and order by another address:
//
//	POST /batches[?service_id=CIRCUIT::SERVICE]
//	GET  /batch_statuses?id=ID,ID…[&wait[=SECONDS]][&service_id=…]
//	POST /batch_statuses[?wait[=SECONDS]]                           (sawtooth)
//	GET  everything else                                           (sawtooth, with Config.Reads: passed to the ledger)
//
// docs/systems-it-grew-from.md has the dialects, what each state of a batch reads as, and what clients are promised.
//
// # What it promises
//
// An answer that a list of batches was taken is given only after all its batches are stored, in the order of the list.
// What was refused with a 400 was not stored: one wrong batch or signature, or one that was submitted for another service, refuses
// the whole list; but if another client submits one of its batches for another service at the same moment, the others may have been
// stored. A batch that is given again is answered like the first time and not stored again. Status, error code, content type, links and the form of JSON are those
// of the dialect's own server but for the differences that docs/systems-it-grew-from.md lists.
//
// # How it fails
//
// When the store cannot be reached, nothing was stored, and the answer is 503; so it is when it is not known whether it
// was, and when the store fails after something was stored: the text says which. A list of more than 500 batches is stored in
// parts; if a later part fails, the first stay. In each case, sending the same list again is safe. Waiting is bounded: a client that finds no place among the waiters is answered at once with
// what is known. So is the memory for bodies: a long one beyond it is refused, with nothing stored (Sawtooth: 429 with code 31;
// Grid: 503).
package front
