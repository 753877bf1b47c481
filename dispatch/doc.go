// Package dispatch delivers batches: a transactional outbox whose keys are divided
// among instances by claims, and whose batches reach a [Target] strictly in
// order per key, at least once, whoever dies at whatever step.
//
// A program enqueues in its own transaction, with the Enqueue of its store's
// package or in plain SQL. Any number of instances each run a [Dispatcher] for the
// queue. People look and act through [Desk].
//
// # The life of a batch
//
//	queued      waits for its turn
//	submitting  under way to the target: its key is in a step
//	pending     the target has it and has not decided; it is asked again
//	valid       the target has executed it and not yet committed it
//	delayed     the target could not take it; it is sent again after a back-off
//	unknown     nobody knows what became of it; the target is asked before it is sent again
//	committed   done
//	invalid     the target judged it and refused it for good
//	failed      given up: the target cannot be asked, or attempts ran out
//	cancelled   a person took it out before it was sent
//
// # What it promises
//
// The order of a key is the order in which the transactions that enqueued
// committed. Of each key one batch is on its way at a time; the next begins only
// after the store has recorded that the one before is committed, or stepped
// aside. Every change of state is a compare-and-set on the key's row under the
// claim's term, so that a sender whose claim is over changes nothing. No batch is lost,
// none waits for ever unseen: it ends committed, or in a state that a person is
// shown.
//
// At a target that recognises the id of a batch, no batch takes effect twice.
// Order at the target is exact if it compares terms, or answers within the
// submission's deadline.
//
// # What it does not promise
//
// A sender that was paused for longer than the second window, in the middle of a
// submission, cannot be recalled: its request may arrive after those of its
// successor. A target that compares terms refuses it, and one that recognises
// ids takes it for the duplicate that it is. To a target that does neither, nor can be asked, a
// batch whose fate is unknown is not sent again: it waits for a person, unless
// the queue's owner has declared that sending again is safe. The same becomes of
// a batch that is pending when its queue is given a target that cannot be asked.
package dispatch
