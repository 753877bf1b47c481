// Package monitor raises one alarm when a source falls silent, and clears it when
// the source returns.
//
// Sources are machines, jobs or programs that send beats. What is expected of
// them stands in the [Event] under whose name they beat: every so often, or at the
// times of a schedule. Any number of instances take beats in ([Inlet]) and look
// for those that are overdue ([Watcher]); they meet in the store ([Table]).
//
// # Clocks
//
// Silence is judged by the time at which beats were received, on the monitor's own
// clock, a [Moment]: the store's clock, but for its steps back. Each way that beats
// take ([Path]) is known to have worked up to its last proof. Time in which a path was
// blind, because no instance was up, the store was down or a router did not
// answer, counts against nobody; nor does a step forward of the store's clock,
// which looks the same.
//
// # The rule
//
// [Event.Judge] is the rule, and it is pure. A source is overdue when its path
// has been seen to work past
//
//	the last beat + interval × missed + grace + the blind time since
//
// and, if the path was blind since the last beat, for one interval and grace after
// that, or beyond the above, whichever is less: a path that drops out again and again
// hides nobody for ever. A source that was declared, resumed or whose timing was
// changed since has a whole limit from then on, and one more after blindness since.
// Of a schedule, times before the end of blindness do not count: their beats may have
// been lost. Nor does a run in which the path was blind count as one that did not
// end; silence will tell.
//
// What was raised ends by a beat, by a configuration under which it would be no
// outage, or with its source, and by nothing else: that the path was blind, that the
// source was resumed or that a run began is no sign of life.
//
// # What it promises
//
// A beat is acknowledged when it is stored. An outage is one ONSET and, at its end,
// one ABATED, with one request id, in this order, each stored for every sink in
// the transaction that changes the state of the source: package dispatch delivers
// them at least once, in order per source. Both are compare-and-sets on what was
// judged: a beat that arrives in between undoes the judgement, whichever instance
// made it. No instance is special: one that dies costs its sources the claim's
// first window.
//
// # What it does not promise
//
// A beat that was lost on its way looks like one that was never sent; missed and
// grace are there for that. A source whose every beat arrives later than its
// limit is overdue, whatever its own clock says. A path that hangs for less than
// its [Proof.Gap] is not noticed. Who reads what the monitor was told by a sink
// that cannot recognise request ids may read it twice.
package monitor
