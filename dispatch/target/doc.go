// Package target has the places where messages go. Each implements dispatch.Target
// and declares what it can promise:
//
//	            Resend               Deduplicates  HasStatus  Forgets
//	[Exec]      unless at most once  if declared   no         –
//	[Webhook]   unless at most once  if declared   yes*       unless declared
//	[Sawtooth]  yes                  yes           yes        yes
//	[Scabbard]  no                   no            yes        yes
//
// (*) unless every 2xx is declared to be final.
//
// # What they promise
//
// An answer is never better than what is certain. [dispatch.Busy] and
// [dispatch.Misconfigured] are given only where the target cannot have acted on the
// message: no connection was made, nothing was written to it, or the target's own
// words say so. Whatever else went wrong is [dispatch.Uncertain]. One call of Submit
// sends a message at most once: nothing below it sends again by itself, redirects are
// not followed, and a connection that turns out to be closed is replaced only while
// nothing was written to it.
//
// Answers are bounded (64 KiB; 8 MiB where statuses are asked) and what they say is
// cut and cleaned before anyone sees it. Secrets are in no answer and no name.
//
// # What an answer means
//
// docs/targets.md has the tables for [Exec] (exit statuses) and [Webhook] (statuses of HTTP, how it is asked, headers,
// how a receiver verifies the signature); docs/systems-it-grew-from.md those for the ledgers, [Sawtooth] and [Scabbard].
// A change of what an answer means changes the table there.
//
// What those do not say: 401 to 407, 410, 421 and 426 are no judgement of the message, because the address or the rights
// are wrong; a 408 may come from a proxy that lost patience; and a 303 was answered elsewhere.
//
// A batch is a serialized BatchList of one batch whose header signature is the id
// of the batch, which has transactions; others, and those whose signatures and keys cannot be such, are refused without
// asking the ledger. When Sawtooth does
// not know a batch, its blocks are asked before that is believed; when a service of Scabbard does not, the others of its
// circuit and the receipts are. Scabbard carries
// out a batch again that it is given again, and forgets all but the last 100: a
// batch whose outcome it does not know blocks its key.
//
// # Where to add an option
//
// An option of a webhook is a field of [WebhookConfig], with its check and its effect (webhook.go); a field of Webhook in
// internal/settings/queue.go, which is its key, flag and help, and a line of (*Webhook).target there; and a line of
// internal/settings/example.yaml, docs/understudy.yaml (which is made of it), docs/targets.md and CHANGELOG.md. One of a program is the
// same with [ExecConfig] and Exec, and with cmd/understudy/queuerun.go, which takes its flags from those of a webhook.
// If sinks of alarms should have it, it is also a field of Sink in internal/settings/sinks.go.
// One that changes what the target can promise is in [dispatch.Semantics], too, and in the table above.
//
// # How it fails
//
// A Config that cannot work is refused by New with an error that wraps
// lease.ErrInvalid. After that nothing fails: see [dispatch.Target].
package target
