// Package shardtest is what every store of shards must pass: [TestRegistry], the
// conformance suite of shard.Registry and shard.Commands. Each rule of the two ports is
// a topic of its own, tried on a real store; what clients say at once is checked
// against a model, whether one order of single steps explains it.
//
// With [Subject.Advance] time is stepped. Without it the suite waits, as briefly as the ports
// allow, and leaves out what would take a minute.
//
// It promises nothing about speed, and does not try what only a failing store does.
package shardtest
