// Package claims is the table of claims of [github.com/understudy-ha/understudy/store/memory]: plain maps under one lock,
// each operation a function of the state. The model of the conformance suites' broken twins, too.
package claims
