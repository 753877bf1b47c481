// Package shardagent runs an agent of a shard beside its node: alone, as the command line wants it, or as one of several in
// a server.
//
// It promises that the flags of the command line are checked as a whole before anything is touched, that the agent
// answers on its addresses before the store is reached, and that it is the last to stop, so that others see what it
// still does. What an agent decides, and what keeps two primaries apart, is package shard's.
package shardagent
