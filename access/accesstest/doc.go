// Package accesstest is what every store of tokens must pass: [TestTokens], the conformance suite of
// access.Tokens. Each rule of the port is a topic of its own, tried on a real store.
//
// It promises nothing about speed, and does not try what only a failing store does, nor a store that is full:
// what then goes is decided by package access, and the suite sees that it is done.
package accesstest
