// Package sink delivers alarms to people and programs. Each sink is a
// dispatch.Target: it gets monitor.AlarmMessage after monitor.AlarmMessage from its queue, in
// order per source, and makes of each what its receiver reads.
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
// all. Each ONSET and its ABATED share a request ID, by which a receiver can recognise the
// second. [dispatch.Done] means that the receiver has confirmed it. What it cannot
// accept as things are (wrong address, no rights, a template that fails) is kept and
// tried again; only what it has judged and refused is final.
//
// Whatever a source is called, its name is only text: it is escaped as each receiver
// demands, ends no line, names no header, mentions nobody and is never run as a template.
//
// Secrets ([Secret], the URLs of webhooks among them) are in no name, no answer, no
// error and no text form of a configuration, also if a receiver repeats them.
//
// Every delivery ends with its context, after a minute at the latest. One sink waits for
// no other.
//
// # What it does not promise
//
// That nobody receives an alarm twice: see the table. That an Alertmanager still knows after it
// was restarted; see [AlertmanagerConfig]. That a mail server which has taken a mail
// delivers it.
//
// # How it fails
//
// A [Config] that cannot work is refused by [New] with an error that wraps
// lease.ErrInvalid; templates are tried with samples then. A payload that is no
// message is refused for good. After that nothing fails: see dispatch.Target.
package sink
