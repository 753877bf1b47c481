// Package ledger is the file that tells what holders did to the world, in the
// order in which it came about: appended to by any number of processes that may
// be killed at any moment, and read while they continue. It promises nothing about
// a file system that several hosts share.
package ledger
