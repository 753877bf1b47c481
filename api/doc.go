// Package api serves what Understudy knows and does over HTTP: roles, sessions
// and leases for programs in any language, queues and their messages, the values of
// a cache, the history and its live feed, metrics, health, and the page. A [Cache]
// serves the cache's part alone, without a store.
//
// # What it promises
//
//   - A program that talks to it over HTTP gets the kernel's guarantees: trust is
//     counted on the program's own clock from before its request, and the belief
//     that a holder has lapsed is formed by the rule of lease.TakeoverPolicy, on this
//     server's clock, across requests. No step of the store's clock makes two
//     holders, whichever way a lease is taken.
//   - Every answer is bounded: bodies, headers, lists, waiting requests, open
//     streams, what is remembered of leases and sessions. A stream whose reader
//     is slow is closed, not buffered; the reader resumes where it stopped.
//   - The store is asked how the queues are doing once for all who want to know, at
//     most once a second, and less often if it takes its time to say.
//   - A payload, and a value of the cache, is given back as it was stored, and in a
//     form that no browser shows or runs as a page of this server.
//   - A request for a value never waits where a copy that would do is here, and never
//     longer than it asks for where none is. Age and freshness are as the peer has them.
//   - What is said of shards comes from a catalog that one reader of the store keeps for
//     all; the header Age tells how old it is. While the store does not answer, what was known
//     is given, as a shard's primary continues meanwhile. What has become of a request is read
//     from the store.
//   - An error says in a stable code what happened (see [apitype.Problem]). An outcome
//     that is not known is said to be unknown.
//   - The id of a session is known to whoever started it and shown to nobody
//     else: it is what one must know to renew, use or end the session.
//
// # What it does not promise
//
// A token that is revoked is refused within about two seconds, and its streams end; but a server that cannot
// reach its store knows what it knew, and refuses it when it reaches the store again. What a caller says of itself is
// written into the history as it says it, beside the name of its token, which is true. Limits keep callers from
// crowding each other out, not a flood from everywhere. A
// program that is paused past the end of its trust does not know it while it is
// paused; its term is for that.
//
// # Who may ask
//
// Without a token the server answers only on loopback, and only to requests that
// name a loopback host, so that a web page elsewhere cannot reach it through a
// name that it rebinds. With a token everything needs it, or one of the tokens that the store keeps (see package
// access) with the scope of the route; but not the page's own
// files, /healthz, /readyz and /v1/roles/{role}/self. Only the configured token manages tokens. Changes asked for by a
// browser on behalf of another site are refused. Each token, and each address without one, may ask only so often
// (see [Limits]).
//
// # How it fails
//
// While the store does not answer, requests that need it are answered 503 at the
// latest after [Config].Timeout, /readyz turns to 503, and the page says so;
// /v1/roles/{role}/self continues answering from this process's own trust. The cache
// needs no store: while its peer reaches no majority, what it has is given, and what
// would have to be fetched is answered 503.
package api
