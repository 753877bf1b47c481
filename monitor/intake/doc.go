// Package intake receives heartbeats: over HTTP (arrays of heartbeats, VES events, pings from scripts)
// and from a Message Router. It parses them and passes them to a [Flow].
//
// # What it promises
//
// A heartbeat is acknowledged when it is stored. Input that cannot be parsed does not affect
// the rest: it is counted and kept with its cause in [RejectedInputs], and valid heartbeats beside it are accepted.
// No input ends a process or blocks later input. Everything
// is bounded: bodies (also after decompression), heartbeats per request, bytes in memory, and
// rejected inputs. No log line contains a body or a key.
//
// # Heartbeats
//
// A heartbeat is a JSON object of the short form,
//
//	{"event":"backup","source":"db1","signal":"ok","code":0,"sent":"2026-01-02T03:04:05Z","seq":7}
//
// of which event and source are required; or a VES event, with or without the object "event" around its
// commonEventHeader, or many in an "eventList". A VES event must have domain, eventName, sourceName,
// lastEpochMicrosec and sequence. Of other domains than heartbeat events are only counted, unless their check says
// that they are heartbeats, too.
// Signal is ok (default), start or fail; without a signal, a code from 1 to 255 means fail.
// Times are RFC 3339, or numbers since 1970 in seconds,
// milliseconds, microseconds or nanoseconds, distinguished by their size; numbers may be strings. A number
// or time that is too large, or before 1970, counts as missing: a wrong clock is
// not a reason to lose a heartbeat. A body has one heartbeat, an array of them, or
// newline-delimited JSON, where a malformed line loses only itself.
//
// # Pings
//
// docs/api.md lists their paths, in the forms of this program, healthchecks.io and Opsgenie. The body of a ping is kept with its source. GET, HEAD and POST all count, so a program that
// fetches a link for a preview sends a heartbeat, too. Some keys accept only POST for that reason; see [PingKey] for how a key is sent.
//
// # The router
//
// [Router] polls a topic, stores the messages, and polls again. While the store
// is unavailable it keeps its messages and does not poll. A poll that returned fewer
// messages than requested probes the path once they are stored: everything sent
// before has arrived. A full poll does not, so no source counts as silent while a backlog
// is read. The limit must therefore not exceed the router's own (4096).
//
// The router forgets messages once it has written them. A message is lost when the connection breaks or this process
// ends before it is read, or when an answer exceeds 32 MiB; the missed count covers that. Messages that are
// delivered twice do no harm. Instances may share a group, each with a consumer ID of its own. If two use the same ID, the
// router refuses them in turns; this is logged once, and only one of them reads.
//
// # How it fails
//
// HTTP answers 429 when too much is waiting and 503 when the store is unavailable, both
// with Retry-After; the sender may repeat the request, stored or not. A Router never
// fails: it pauses, 100 ms to 30 s with jitter, and tries again; see [RouterStats].
package intake
