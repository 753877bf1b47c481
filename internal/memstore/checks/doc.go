// Package checks is the monitor's part of [github.com/understudy-ha/understudy/store/memory]: plain maps under one lock.
// It states the rules of the port as briefly as possible, so the conformance suite compares other stores with it.
package checks
