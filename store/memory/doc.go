// Package memory is a whole store in the process's own memory: leases, history, claims, queues, the monitor's table, shards
// and tokens. Use it to test your program: it passes the conformance suites of the other stores, needs no server, and its
// clock is whatever you give it, so that tests in testing/synctest bubbles take no time.
//
// It keeps nothing across restarts and serves one process. Every operation holds one lock and looks at all rows: it is made
// for hundreds of keys, not for load.
//
// It is plain Go and not SQLite in memory: a database has goroutines that a bubble would wait for, and these maps are what
// the project's own simulations and broken variants are made of.
package memory
