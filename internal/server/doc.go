// Package server runs what a server's settings name: the page and the API, and the parts beside them, each of which
// goes on by itself on one store.
//
// It promises that the port answers before the store is there; that a part which fails for good stops all others, in
// order, and is the error; and that roles and keys are given back before Run returns. Settings that are read again
// change what can be changed at once, or nothing if there is a mistake in them, and say what waits for a restart. It
// parses no file and no flag: that is package settings', and the command's.
package server
