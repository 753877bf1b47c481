// Package memory keeps sessions, leases and the history in the process's own
// memory, for tests and simulations. It keeps nothing across restarts and serves
// one process; its clock is whatever it is given.
package memory
