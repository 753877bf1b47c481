// Package messagerouter talks to a DMaaP Message Router: it reads a topic and
// publishes to it, over HTTP/1.1.
//
// # What it promises
//
// Every request has a deadline, and every answer a bound. An error body is told
// from messages by its form, never by a word in it. Of an answer that breaks off or
// is too long, whatever came whole is returned beside the error: the router may
// have counted it as read. A message counts as published only when the router says
// that it took it. Redirects are not followed: they
// would take the password along. No error and no text form shows a password, or what was
// said in a message.
//
// # What it does not promise
//
// The router forgets messages as soon as it has written them to a connection.
// What was on its way when that broke is lost, and no client can get it back.
// Nothing is sent again here, but a poll by the transport, when a connection that was
// kept alive turns out to be closed. Callers pause between attempts.
//
// # How it fails
//
// [*Error] is the router's own refusal, with its status and its code. [ErrNotSent]:
// no connection, so nothing has happened. [ErrAnswer] and [ErrTooLarge]: it answered, but not
// so that it can be used; something may have happened. Any other error is a
// connection that broke or a deadline that passed: unknown as well.
package messagerouter
