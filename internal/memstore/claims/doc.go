// Package claims is the table of claims of [github.com/understudy-ha/understudy/store/memory]: plain maps under one lock,
// each operation a function of the state. The broken twins of the conformance suites are variants of it.
package claims
