// Package dispatch is a transactional outbox: it delivers messages in order per
// key, at least once, even when instances crash.
//
// A program enqueues in its own transaction, with the Enqueue of its store's
// package or in plain SQL. Any number of instances each run a [Dispatcher] for
// the queue; claims (package claim) divide the keys among them. A [Target] is
// where messages go. Operators list, retry, skip and cancel through [Admin].
//
// # The states of a message
//
//	scheduled   is in no key yet: it joins its key when it is due ([Message].NotBefore)
//	queued      waits for its turn
//	submitting  its key is in a step (see below): it is with a sender, or soon will be
//	pending     the target has it and has not decided; it is polled
//	valid       the target has executed it and not yet committed it
//	delayed     the target could not take it; it is sent again after a back-off
//	unknown     the target may have it; if the target has a status query, it is asked before the
//	            message is sent again or given up
//	committed   done
//	invalid     the target refused it for good. It blocks its key if OnFailure is block, and
//	            is sent again instead if that is retry
//	failed      given up: the attempts ran out, one failed when it was older than MaxAge, or
//	            its address refused it for five minutes. It blocks its key, unless OnFailure is
//	            skip, or its address refused it and OnFailure is not block. One of unknown outcome stays unknown then, and blocks, unless
//	            OnFailure is skip and the target declares Resend. Skipped by an operator, a
//	            message is always failed
//	cancelled   an operator removed it, before it was sent or while it was stuck
//
// A dead-lettered message (invalid or failed, and not blocking) and a cancelled one no
// longer hold their key up. A blocked key waits for an operator. A message that is pending or
// valid for too long is stuck: its key is shown as blocked, and polled on.
//
// A step is package claim's word: one piece of work on a claimed key, which starts
// and finishes in the store. Here it is one submission, with the status query before
// it if there is one. It starts when an [Exchange] names the key in Begin, and ends
// when the result of its [Assignment] is recorded. Polling is not a step.
//
// # Who decides what
//
//	rule.go        what an answer of the target means for the message and its
//	               key: retry, poll, block, dead-letter. Pure.
//	machine.go     what this instance asks of the store next (one request at a
//	               time). Pure: time and jitter come from outside. recordUnsent
//	               makes a result without the rule: a message that was certainly
//	               not sent is delayed (unknown, with the reason that it had, if it
//	               was to be resolved), is tried again at once, and has used no attempt
//	exchange.go    which results go into an exchange, and which keys start (addStarts:
//	               keys whose start got no answer, alone; else those whose streak lasts,
//	               unless some are to be released, then machine.readySlots in order).
//	               handleAssignment: a message that is pending at an earlier
//	               target of the queue is uncertain if the present one cannot be
//	               asked
//	sending.go     which started messages go to the target. handleAnswer delays a
//	               retry while the target may still execute the first attempt, and
//	               counts for how long it was refused (refusals.go)
//	polling.go     when the target is asked about what it has. handlePollAnswers
//	               shows what it does not decide as stuck
//	refusals.go    for how long, and how often, the target has refused or lost a message
//	limiter.go     the work that this instance starts per second
//	keys.go        how many keys to claim, and which to release: never one whose
//	               message the target has and has not decided, unless this instance
//	               stops (releaseIdle in machine.go). Which keys an instance gets is the
//	               store's: those that have been ready for longest (store/sqlite/claims_take.go,
//	               store/postgres/functions/claims.sql; claim/share.go divides them)
//	blocked.go     forgets blocked keys that an operator has unblocked
//	dispatcher.go  the runner: one goroutine that owns the machine
//	sender.go      the goroutines that call the target. submit sends a message of
//	               unknown outcome again only if the target does not have it, or
//	               sending again is safe
//	queue.go       the port to the store that delivers. The store decides the work
//	               of a started head: send, poll, or resolve (see [Queue].Exchange),
//	               in startStep of store/sqlite/queue_exchange.go, in "exchange" of
//	               store/postgres/functions/queue.sql, and in startHead of
//	               internal/memstore/queues/deliver.go, the model that tests
//	               compare with. Redis has no queues
//	admin.go       the port to the store for operators
//
// One delivery: claim a key ([claim.KeyTable].ClaimKeys) → start its head
// ([Queue].Exchange) → [Target].Submit → [Rule].Classify → record the result and
// start the next message of the key, in one more Exchange. A result with
// [RetryLater] releases the key instead: after the pause any instance may claim it
// and continue.
//
// # Where to add an option
//
// One of a target, such as a header, is in package target's documentation. A new setting of a queue is
//
//   - a field of Queue in internal/settings/queue.go, which is its key, flag and help,
//     and what checkDelivery there refuses. If alarms should have it too, it is also a
//     field of Sink in sinks.go, which Sink.Queue copies;
//   - a field of [Config], copied by newDispatcher in internal/server/deliver.go, and of
//     [Rule] if it changes what an answer means (a field of [RetryPolicy] is a
//     line of RetryPolicy in internal/settings/queue.go instead);
//   - a line of internal/settings/example.yaml, and docs/understudy.yaml, which is made of it:
//     go test ./internal/settings -run TestReference -update. docs/dispatch.md and CHANGELOG.md have it by hand.
//
// [Config.Validate] refuses the same once more, for Go programs. Config.rule copies what [Rule] needs. A setting that ends
// messages also needs sim/queue_judge.go to allow that, and what is promised below to say it. One that decides from the
// [Assignment] that a message is not sent is a case of handleAssignment (exchange.go), which queues a [Result]; it is seen
// only at the head of a key that starts. In tests, one that the
// machine uses is a word of script_test.go, and drawn in sim/queue_world.go.
//
// A limit on messages in flight, as Concurrency is one, belongs in startBudget (exchange.go). Do not start a message and hold it
// back: it misses its deadline and is released. If a start becomes possible with time alone, hasStarts, addStarts and
// nextWake (machine.go) have to know when; otherwise it waits for the next join, up to a second.
//
// A new property of a message, as NotBefore is one, is
//
//   - a field of [Message], with its default and its check there;
//   - a column in SQLite and PostgreSQL, of messages and of scheduled ones: "A new column of a message" in
//     store/postgres/functions/README.md has the places of both;
//   - if it decides whether the message is sent, and [Assignment] lacks what tells that, a branch where the store starts a step (see queue.go above): an exchange names a
//     key before anybody knows what its head is, and an instance's clock is not the store's. [Rule.beforeSend] is asked
//     before every submission, after the status query if there was one: what it needs is a field of [Assignment];
//   - for users, NewMessage and Message in api/apitype, api/messageadd.go and messages.go with api/openapi.json, queueadd.go and
//     queuelist.go in cmd/understudy, web/browse.js, docs/dispatch.md, docs/api.md and CHANGELOG.md;
//   - a case in dispatchtest, which every store passes, and in sim.
//
// If a setting needs a fact about the message that is not there yet, that is a field of
// [Assignment], which each of the three stores fills and dispatchtest tests. A [Config]
// holds for one instance, as Rate and Concurrency do, and no instance knows what the others
// have in flight: what must hold for all of them together is decided in [Queue].Exchange, by each store.
//
// A new property of a target is a field of [Semantics]. A new outcome is a constant of
// [Outcome] and a case of [Rule.Classify]; testdata/*.txt has the scripts that replay
// both.
//
// # What it promises
//
//   - The order of a key is the commit order of the transactions that enqueued. A
//     scheduled message takes part in it from its time on, and no sooner by the store's clock.
//   - One message of a key is in flight at a time. The next starts only after
//     the store has recorded that the previous one is committed or dead-lettered.
//   - Every change of state is a compare-and-set on the key's row under the
//     claim's term: a sender whose claim has ended changes nothing.
//   - No message is lost or waits unseen: it ends committed, or in a state that
//     operators are shown. One of unknown outcome whose target does not answer is asked about
//     until it does, or is too old.
//   - At a target that deduplicates by message ID, no message takes effect twice.
//     The order at the target is exact if it compares terms, or answers within
//     the submission's deadline.
//
// # What it does not promise
//
// A sender that was paused in mid-submission for longer than the second window
// cannot be recalled: its request may arrive after those of its successor. A
// target that compares terms refuses it; one that deduplicates drops it. A
// target that does neither may act on a message twice. Where that is worse than to wait,
// the target does not declare [Semantics.Resend]: a message whose outcome it cannot
// tell then blocks its key, and so does a pending one when its queue gets a target that
// cannot be asked.
//
// # How it fails
//
// Pauses and scheduled times are judged by the store's wall clock: set back by an hour,
// it makes them an hour longer.
//
// A store that cannot be reached is retried with a back-off of 20 ms to 2 s;
// submissions in flight continue, no new ones start. An exchange without an answer is
// repeated: results that were recorded already are ignored, and steps that it may
// have started are started again, because nothing was sent for them. A target
// never fails: what went wrong is an [Outcome]. A panic of a target is Uncertain.
package dispatch
