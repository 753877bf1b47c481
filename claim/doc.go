// Package claim divides keys of work among any number of instances: tenants,
// accounts, partitions, sources, the keys of a queue.
//
// A key is a row in the store. The instance that claims it works on it in steps,
// which start and finish in the store; when its session lapses, others take its
// keys. [Run] does all of it for a program's own work, [Hold] for work without
// steps. [KeyTable] is the port to the store; package dispatch uses it directly.
//
// # The two windows
//
// A claim is held while its holder's session lives, and a session lives for the
// first window (30 s) after each renewal. After that any instance may take the
// key, unless a step was in progress: then only once the second window (3 min)
// since the start of that step has passed too. A step's deadline is shorter than
// the second window, so by then the step has ended or its process is not running.
// A holder that stops in order releases its keys at once. Both windows, and when a key
// is ready, go by the store's clock alone: if it is set back, all that waits does so for as
// much longer; if it is set forward, keys are taken over as much earlier.
//
//	free      not held; may be taken when it is ready
//	held      by a live session, which may release it
//	in a step held, and its holder has started a step that is not finished
//	lapsed    its holder's session has lapsed: may be taken, in a step only after
//	          the second window; the new holder learns that the step was interrupted
//
// # Who decides what
//
//	claim.go    the port and its types; Row.IsFree is the rule of what may be taken
//	windows.go  the two windows, and which combinations are refused
//	share.go    how many keys are a fair share, and how many to give back. Pure.
//	holder.go   joining, claiming, and reconciling with what the store counts
//	run.go      Run: steps of work, their deadlines, their results
//	hold.go     Hold: keys without steps
//
// A new setting of both Run and Hold goes into [Config], [HoldConfig] and holder.
//
// # What it promises
//
// Claiming a key, starting a step and finishing it are compare-and-sets on the
// key's one row, under a term that only grows: a start and a takeover can never
// both succeed, and a finish under an old term has no effect. The store is the
// truth about what an instance holds; what a process remembers is a hint that the
// next request corrects. Shares are fair: an instance that joins has its part
// within a few seconds, released by those that hold more, never torn from a step.
//
// # What it does not promise
//
// A process that was paused in mid-step for longer than the second window cannot
// be recalled: what it then does outside the store happens beside its successor.
// Its term is older; check terms where effects land. Claiming a free key is not an
// event of the history, because it happens for every piece of work; taking over a
// lapsed key is.
//
// # How it fails
//
// A request that the store did not answer is repeated after [PollInterval]. Keys
// that the store gave to this session in a lost answer are noticed, because each
// Join counts them, and released after the second mismatch. A step whose result
// could not be recorded counts as interrupted.
package claim
