// Package sink delivers alarms. Each sink is a
// dispatch.Target: it receives each monitor.AlarmMessage from its queue, in
// order per source, and converts it for its receiver.
//
//	                       deduplicates             receives
//	[WebhookConfig]        if declared               JSON, or a body made by a template
//	[SlackConfig]          no                        a message with a coloured attachment
//	[MessageRouterConfig]  no                        a control-loop event
//	[AlertmanagerConfig]   no                        an alert that does not expire
//	[EmailConfig]          no                        a mail; its Message-ID is the alarm's
//	[LogConfig]            no                        one line
//
// # What it promises
//
// An alarm that may not have arrived is sent again: twice is better than not at
// all. Each ONSET and its ABATED share a request ID, by which a receiver can recognise
// duplicates. [dispatch.Done] means that the receiver has confirmed the alarm. If the receiver cannot
// accept it for a reason that may pass (wrong address, missing rights, a template that fails), it is kept and
// tried again; only a refusal of the alarm itself is final.
//
// The name of a source is only text: it is escaped as each receiver requires and cannot end a line,
// add a header, mention a user or run as a template.
//
// Secrets ([Secret], including the URLs of webhooks) appear in no name, answer,
// error or printed configuration, even if a receiver repeats them.
//
// Every delivery ends with its context, or after a minute where that has no deadline. Sinks do not wait for
// each other.
//
// # What it does not promise
//
// That no receiver gets an alarm twice: see the table. That an Alertmanager remembers an alert
// after a restart; see [AlertmanagerConfig]. That a mail server delivers a mail that it has
// accepted.
//
// # How it fails
//
// [New] refuses a [Config] that cannot work with an error that wraps
// lease.ErrInvalid; it tries templates with samples. A payload that is not a
// message is refused for good. All later failures are those of a dispatch.Target.
package sink
