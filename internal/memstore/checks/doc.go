// Package checks is the monitor's part of [github.com/understudy-ha/understudy/store/memory]: plain maps under one lock, and
// the rules of the port in as few words as they can be said in. Other stores are compared with it.
package checks
