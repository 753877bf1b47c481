// Package memtrim gives back, once a server has started, the memory that only its start needed.
//
// A program of 28 MiB has two thirds of its own file mapped after its start: the kernel maps sixteen pages around each one that is
// touched, and a start touches something of every library. A server that idles afterwards needs a third of that. Unmapping costs a
// minor page fault for each page that is used again; nothing is read from a disk, since the pages stay in the page cache.
package memtrim
