// Package idleconn reports whether the other side has closed a connection that was kept for later, before a request is
// lost on it.
package idleconn
