// Package resp is the one codec of RESP, the protocol of Redis: for servers, a [Reader] of requests and a [Writer] of answers in
// versions 2 and 3; for clients, [AppendCommand] and a [ReplyReader] of version 2.
//
// A [Reader] takes requests as Redis does: arrays of bulk strings, and lines as people type
// them. Everything that a client can make it keep is bounded by its [Limits]. A
// [ProtocolError] is to be told to the client, whose connection is of no use after it.
// A [Writer] gathers answers; what they look like depends on the version that the client asked for.
package resp
