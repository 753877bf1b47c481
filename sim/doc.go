// Package sim runs whole clusters of real keepers, campaigns and dispatchers in one
// process, under virtual time, from a seed.
//
// A run of a role ([Run]) has three to five instances on one store. Every instance has its own
// clock, whose rate is off by up to lease.Timing.RateTolerance and whose wall
// clock is stepped, and its own link to the store, which delays, reorders,
// duplicates, loses, answers late and is cut, one way or both. Instances are
// killed, stopped and started again; the store is paused and its clock stepped.
// A fenced run also freezes instances at any point, for up to 4·T, and restores
// the store from a backup of up to an hour ago.
//
// # What is checked
//
//   - Without freezes and restores: no lease is given away while the work of its
//     last holder has not returned, and no effect of a term follows one of a
//     later term.
//   - With them, at a ledger that refuses lower terms: every term belongs to one
//     session, and the newest holder is never refused.
//   - No running work finds its context alive past the deadline that its
//     session has in the store, counted in true time (unless the store lost it).
//   - Terms never fall, and no session is renewed past its deadline by the
//     store's clock.
//   - Once faults stop there is a primary within T + I, counted from when the
//     calls that were under way have timed out, and one T more if the store's
//     clock was stepped; and then it stays.
//
// A run of a queue ([RunQueue]) has two to five dispatchers, users who enqueue, a
// person who looks in, and a target with a network of its own: one that recognises
// ids or not, can be asked or not, compares terms or not, decides later, forgets,
// is slow, down, busy, silent before or after it acted. The store is dispatchtest.Memory,
// because a database cannot run in a bubble. Of it is checked:
//
//   - At the store: a key is taken only from nobody, or from one who lapsed and
//     past the second window of a step; one batch of a key at a time is begun, the
//     first that is not over, by the holder of the newest term; only its results
//     count, and they do; what was interrupted is asked for; what waits for a person
//     waits.
//   - At the target: no submission without a step, no two at once, none that
//     nobody knows the fate of again where that is not safe, none while another
//     has the key within the second window; each batch takes effect once, and those
//     of a key in order. Senders that were frozen past their second window are
//     counted apart.
//   - Both agree: what is recorded as committed took effect, what as invalid was
//     refused.
//   - Once faults stop, every batch is delivered or shown to a person with a reason,
//     and delivered when the person has acted; nothing is lost.
//
// A target that does not recognise ids acts on a request within the submission's
// deadline, or never; the store's clock is stepped only beside one that does. Without
// this nothing could be promised.
//
// Each check is proven by a [Twin] or [QueueTwin], broken on purpose, that it must
// catch.
//
// # What it does not do
//
// The same seed draws the same faults, but goroutines that are ready at the same
// instant run in any order, so that a failing seed may have to be run a few times.
package sim
