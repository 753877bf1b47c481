// Package client calls the HTTP API of an Understudy server: roles and their holders, sessions and leases, queues and messages,
// the monitor, shards, the cache, tokens, the history and the overview. It needs only the standard library and the types of package apitype.
//
// Every call ends with its context; one without a deadline gets ten seconds. An error that the server sends is an [*Error]
// with the API's stable code. Any other error comes from net/http, and then a request for a change may have been carried
// out. [Client.Events] reconnects by itself and continues after the last event that it passed on.
//
// The client renews no session by itself, and does not know when one can no longer be trusted: a Go program that wants to hold
// a role uses packages elect and lease on the store itself.
package client
