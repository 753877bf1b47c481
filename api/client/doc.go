// Package client asks the HTTP API of an Understudy server: who is primary,
// to resign, what changed hands; to enqueue batches, to see how they are doing and to
// retry them; to look after a cache and shards; to send beats and see who is silent; to manage
// tokens; how all of it is at a glance. It stands on the standard library alone.
//
// Every call ends with its context; one without a deadline gets ten seconds.
// An answer that is an error is an [*Error] with the API's stable code;
// whatever else goes wrong is what net/http returned, and then a request that
// asks for a change may have been carried out. [Client.Events] comes back by
// itself after a broken connection, from the last event that it passed on.
//
// It does not keep sessions: a Go program that wants to hold a role uses the
// packages elect and lease with the store itself.
package client
