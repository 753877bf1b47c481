// Package sim runs whole clusters of real keepers and campaigns in one process,
// under virtual time, from a seed.
//
// A run has three to five instances on one store. Every instance has its own
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
// Each check is proven by a [Twin], a cluster broken on purpose, that it must
// catch.
//
// # What it does not do
//
// The same seed draws the same faults, but goroutines that are ready at the same
// instant run in any order, so that a failing seed may have to be run a few times.
package sim
