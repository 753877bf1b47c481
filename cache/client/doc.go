// Package client asks the peers of a cache for values.
//
// A [Client] keeps one connection to each server. A request goes to one server that
// is connected, each time to the next in turn; when that one does not answer, has
// no value or breaks off, the request goes to the next, until there is a value, an
// error that asking again would not change, or no more time.
//
// # What it promises
//
//   - [Client.Get] returns by its deadline, whatever the servers do: the earlier of
//     the context's and Config.Timeout from the call.
//   - A request is given only to a server that is connected. When the connection
//     breaks, its requests go to other servers at once.
//   - A server that says nothing for 500 ms, or for 2.1 s after it said that it is
//     waiting, is passed over for the next, and for a second by other requests too,
//     as long as another server is there.
//   - A server that says "ask another" is believed, with a back-off that grows and has
//     jitter: servers that send a client round do not cause a storm.
//   - What waits is bounded: Config.InFlight requests per server.
//   - A reply that comes too late is ignored. A malformed one is counted.
//
// # What it does not promise
//
//   - That a value is fresh: that is for Options.After to ask. Item.Expire is by
//     the servers' clocks.
//   - That two Gets in a row see values in order: they may ask different servers, and
//     one may not have the newer copy yet. Item.Term orders them.
//   - That the source is asked once: a request may be given to two servers, which
//     agree on who fetches.
//   - Without Curve, that who answers is who it should be.
//
// # States of a server
//
//	down      no connection; the next attempt is made after at most 500 ms
//	up        asked in its turn
//	silent    connected, and did not answer in time: asked when no other is, or to see
//	          whether it answers again, once a second
//
// # How it fails
//
// With [ErrFailed], [ErrNotFound], [ErrPartitioned], [ErrOverloaded], [ErrTooLarge] or
// [ErrBadRequest] when the servers said so: then [Refusal] has the details. With
// [ErrTimeout] when the time is over: its text names the servers and what each said.
// With the context's error when that was cancelled, and [ErrClosed] after Close.
// The original's servers say no errors: a source that fails is a timeout there.
package client
