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
//	submitting  its key is in a step that sends it (see below): it is with a sender, or soon will be
//	pending     the target has it and has not decided; it is polled
//	valid       the target has executed it and not yet committed it
//	delayed     the target could not take it; it is sent again after a back-off
//	unknown     the target may have it; if the target has a status query, it is asked before the
//	            message is sent again or given up. It stays unknown in the step that does so
//	committed   done
//	invalid     the target refused it for good. It blocks its key if OnFailure is block, and
//	            is sent again instead if that is retry
//	failed      given up: the attempts ran out, one failed when it was older than MaxAge, or
//	            its address refused it for five minutes. It blocks its key, unless OnFailure is
//	            skip, or its address refused it and OnFailure is not block. One of unknown outcome
//	            becomes failed only if the target declares Resend, and OnFailure is skip or its
//	            address refused it; otherwise it stays unknown, and blocks. Skipped by an
//	            operator, a message is always failed
//	cancelled   an operator removed it, before it was sent or while it was stuck
//
// A dead-lettered message (invalid or failed, and not blocking) and a cancelled one no
// longer hold their key up. A blocked key waits for an operator. A message that is pending or
// valid for too long is stuck: its key is shown as blocked, and polled on.
//
// A step is package claim's word: one piece of work on a claimed key, which starts
// and finishes in the store. Here it is one submission, with the status query before
// it if there is one. It starts when an [Exchange] names the key in Begin, if the session
// lives, no step of the key is in progress, and its head is neither pending nor valid. It
// ends when the result of its [Assignment] is recorded. Polling is not a step.
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
//	               retry while the target may still execute the attempt before (if it
//	               deduplicates, only after the last attempt), and counts for how long it was
//	               refused (refusals.go)
//	polling.go     when the target is asked about what it has. handlePollAnswers
//	               shows what it does not decide as stuck
//	refusals.go    for how long, and how often, the target has refused or lost a message
//	limiter.go     the work that this instance starts per second
//	keys.go        how many keys to claim, and which to release: never one whose
//	               message the target has and has not decided, unless this instance
//	               stops (releaseIdle in machine.go). Which keys an instance gets is the
//	               store's: those that have been ready for longest (store/sqlite/claims_take.go,
//	               store/postgres/functions/claims.sql; claim/share.go divides them)
//	blocked.go     logs blocked keys, and forgets stuck messages whose keys an operator has
//	               unblocked
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
// It depends on what decides. An option of a target, such as a header, is in package target's documentation.
//
//	what decides                         where
//	an answer of the target              [Rule.Classify], from a field of [Rule] that Config.rule copies
//	the message at the head of its key   handleAssignment (exchange.go): a case that queues a [Result], so that it is not sent
//	the same, after the target was       [Rule.beforeSend], which is called before every submission, after the status
//	asked for the message                query if there was one
//	what this instance has in flight     startSends (sending.go), as Concurrency, and startBudget (exchange.go)
//	what this instance has started       limiter.go, as Rate, called by hasStarts and addStarts (exchange.go)
//	what all instances have done with    each store counts, and handleAssignment decides: see below
//	a key, as a limit per key and hour
//	when the message may be sent         a property of the message, as NotBefore
//
// handleAssignment and beforeSend decide from the [Assignment]. What it lacks is a new field there, which each of the three stores
// fills and dispatchtest tests: an exchange names a key before anybody knows what its head is, and an instance's clock is not the
// store's. Only the head of a key that starts is seen.
//
// startSends limits submissions in flight. startBudget limits what the store starts for them, which is twice that while the target
// is fast. A limit needs both: a message that is started and held back misses its deadline and is released. If a start becomes
// possible with time alone, hasStarts and addStarts (exchange.go) and nextWake (machine.go) have to know when; otherwise it
// waits for the next join, up to a second.
//
// No instance knows what the others do with a key: a [Config] holds for one instance. For a limit per key and time
//
//   - each store counts in [Queue].Exchange ("A new column of a key" in store/postgres/functions/README.md): results whose
//     Attempt says that something was sent, not starts; and tells in a field of Assignment the count and when it falls. It
//     starts the step all the same: sim/queue_judge.go calls it a breach if a key is released without a result while a
//     message waits;
//   - for [Send], handleAssignment queues a result: Delayed, RetryLater, a Wait, the reason in Detail, and one Attempt less,
//     as recordUnsent does;
//   - for [Resolve], the target is asked first; beforeSend then answers Busy with RetryAfter instead of having it sent.
//
// A new setting of a queue is
//
//   - a field of Queue in internal/settings/queue.go, which is its key, flag and help,
//     and what checkDelivery there refuses. If alarms should have it too, it is also a
//     field of Sink in sinks.go, which Sink.Queue copies;
//   - a field of [Config], copied by newDispatcher in internal/server/deliver.go, and refused by [Config.Validate] once more,
//     for Go programs (a field of [RetryPolicy] is a line of RetryPolicy in internal/settings/queue.go instead);
//   - a line of internal/settings/example.yaml, and docs/understudy.yaml, which is made of it:
//     go test ./internal/settings -run TestReference -update. docs/dispatch.md and CHANGELOG.md have it by hand;
//   - if the machine uses it, a word of script_test.go, and a draw in sim/queue_world.go. If it ends messages,
//     sim/queue_judge.go must allow that, and what is promised below must say it.
//
// A new property of a message, as NotBefore is one, is
//
//   - a field of [Message], with its default and its check there;
//   - a column in SQLite and PostgreSQL, of messages and of scheduled ones: "A new column of a message" in
//     store/postgres/functions/README.md has the places of both;
//   - if it decides whether the message is sent, a field of [Assignment] (see above), filled where the store starts a step (see
//     queue.go above);
//   - for users, NewMessage and Message in api/apitype, api/messageadd.go and messages.go with api/openapi.json, queueadd.go and
//     queuelist.go in cmd/understudy, web/browse.js, docs/dispatch.md, docs/api.md and CHANGELOG.md;
//   - a case in dispatchtest, which every store passes, and in sim.
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
//   - A dispatcher starts a step, and changes a message by a result, only under the claim's
//     term, which the store checks with the key's row locked: a sender whose claim has ended
//     changes nothing. Operators' actions need no claim.
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
// submissions in flight continue, and those that the store has started are still sent; no
// others start. An exchange without an answer is repeated: results that were recorded already are ignored, and steps that it may
// have started are started again, because nothing was sent for them. A target
// never fails: what went wrong is an [Outcome]. A panic of a target is Uncertain.
package dispatch
