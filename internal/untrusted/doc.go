// Package untrusted makes what other programs said fit to be kept and shown: their
// answers, the ends of their output, and when they ask to be tried again. Nothing
// of it is trusted.
package untrusted
