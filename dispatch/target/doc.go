// Package target has the places where messages go. Each implements dispatch.Target
// and declares what it can promise:
//
//	            Resend, Recognises  Asks  Forgets          Compares
//	[Exec]      if declared         no    –                if declared
//	[Webhook]   if declared         yes*  unless declared  if declared
//	[Sawtooth]  yes                 yes   yes              no
//	[Scabbard]  no                  yes   yes              no
//
// (*) unless every 2xx is declared to be final.
//
// # What they promise
//
// An answer is never better than what is certain. [dispatch.Busy] and
// [dispatch.Rejected] are given only where the target cannot have acted on the
// message: no connection was made, nothing was written to it, or the target's own
// words say so. Whatever else went wrong is [dispatch.Uncertain]. One call of Submit
// sends a message at most once: nothing below it sends again by itself, redirects are
// not followed, and a connection that turns out to be closed is replaced only while
// nothing was written to it.
//
// Answers are bounded (64 KiB; 8 MiB where statuses are asked) and what they say is
// cut and cleaned before anyone sees it. Secrets are in no answer and no name.
//
// # A program: Exec
//
//	exit 0                   committed
//	exit 65 (EX_DATAERR)     invalid
//	exit 75 (EX_TEMPFAIL)    busy
//	exit 77, 78 (EX_NOPERM,  rejected: the program promises that it did nothing
//	  EX_CONFIG)
//	cannot be started        rejected; busy if this machine lacks processes,
//	                         memory or files for it
//	any other end            uncertain: it may have done its work, or a part
//
// # HTTP: Webhook
//
//	2xx                      committed; see below for 202
//	202 with a Location      pending; the location is asked
//	303                      uncertain: it was answered elsewhere
//	other 3xx                rejected: redirects are not followed
//	401 402 403 404 405 406  rejected: the address or the rights are wrong, not
//	407 410 421 426          the batch
//	408                      uncertain: who timed out may be a proxy
//	409, 412 with the header busy: another instance has the key under a newer
//	  Understudy-Term        term, which is the header's value
//	409                      invalid at the first attempt; at a later one, or with
//	                         Retry-After, uncertain: the one before may be at work still
//	425 429                  busy
//	other 4xx                invalid
//	501 505 508 510 511      rejected
//	503 with Retry-After     busy
//	other 5xx                uncertain
//	no connection            busy; rejected if its certificate is not accepted
//	broken, timed out, or an uncertain
//	  answer that breaks off
//
// A location, or the status URL if one is configured, is asked with GET:
//
//	200 and JSON             its member "status": committed, pending, valid, invalid
//	                         or unknown; "message" says more. Without: uncertain
//	other 2xx but 202, 303   committed
//	202                      pending
//	404                      it does not know the batch
//	410                      invalid: it had the batch, and gave it up
//	anything else            uncertain
//
// A location on another host is not asked. A message without either counts as
// not found, which proves nothing.
//
// docs/targets.md shows the headers and how a receiver verifies the signature;
// docs/systems-it-grew-from.md has the ledgers.
//
// # Ledgers: Sawtooth and Scabbard
//
//	                    Sawtooth                       Scabbard
//	202                 pending                        pending
//	400                 invalid (code 42: rejected)    invalid
//	413                 invalid                        invalid
//	401 403 404 405 3xx rejected                       rejected
//	408                 busy with code 19, else uncertain uncertain
//	429                 busy                           busy
//	503                 busy with code 15, else uncertain uncertain
//	anything else       uncertain                         uncertain
//
// A batch is a serialized BatchList of one batch whose header signature is the id
// of the batch; others are refused without asking the ledger. When Sawtooth does
// not know a batch, its blocks are asked before that is believed. Scabbard carries
// out a batch again that it is given again, and forgets all but the last 100: a
// batch whose outcome it does not know blocks its key.
//
// # How it fails
//
// A Config that cannot work is refused by New with an error that wraps
// lease.ErrInvalid. After that nothing fails: see [dispatch.Target].
package target
