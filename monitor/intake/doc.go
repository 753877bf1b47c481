// Package intake is where beats come from: HTTP (arrays of beats, VES events, pings of scripts)
// and a Message Router. It reads what was sent, and hands beats to a [Flow].
//
// # What it promises
//
// A beat is acknowledged when it is stored. What cannot be read harms nothing
// else: it is counted and kept by its cause in [DeadLetters], and what came with it is taken.
// Nothing that anybody sends ends a process or holds up what follows. Everything
// is bounded: bodies, also unpacked ones, beats of a request, bytes in hand, and
// dead letters. No log line has a body or a key in it.
//
// # Beats
//
// A beat is a JSON object of the short form,
//
//	{"event":"backup","source":"db1","signal":"ok","code":0,"sent":"2026-01-02T03:04:05Z","seq":7}
//
// of which event and source are required; or a VES event of any domain, with or without
// the object "event" around its commonEventHeader, or many in an "eventList". A
// VES event must have eventName, sourceName, lastEpochMicrosec and sequence.
// Signal is ok (default), start or fail; a code, 0 to 255, other than 0 means fail
// where no signal says otherwise. Times are RFC 3339, or numbers since 1970 in seconds,
// milliseconds, microseconds or nanoseconds, told apart by their size; numbers may be texts. A number
// or a time that is too large, or before 1970, counts as not said: a wrong clock is
// no reason to lose a beat. A body has one beat, an array of them, or one after
// the other (newline-delimited JSON), where one that is no JSON costs its own line.
//
// # Pings
//
// docs/api.md has their paths. A ping's body is not read. GET, HEAD and POST all count: whatever fetches a link to preview
// it beats as well. For that there are keys that accept only POST; see [PingKey] for how a key is sent.
//
// # The router
//
// [Router] polls a topic, stores what it gets, and then polls again. While the store
// is away it keeps what it has and asks for no more. A poll that brought fewer
// messages than it asked for proves the path, once they are stored: whatever was
// sent before has arrived. A longer backlog proves nothing, so nobody is called silent while
// it is read. The limit must therefore not be higher than the router's own (4096).
//
// The router forgets messages when it has written them: what was on its way when the connection broke or this process
// ended, or the rest of an answer of more than 32 MiB, is lost, and the missed count makes up for it. Messages that are
// delivered twice do no harm. Instances may share a group, each under a consumer ID of its own. Two with the same ID are
// refused by the router in turns; that is logged once, and only one of them reads.
//
// # How it fails
//
// HTTP answers 429 when too much is waiting and 503 when the store is away, both
// with Retry-After; what was sent may then be sent again, stored or not. A Router never
// fails: it pauses, 100 ms to 30 s with jitter, and tries again; [RouterStats] tells.
package intake
