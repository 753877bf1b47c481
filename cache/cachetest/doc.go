// Package cachetest is what every storage of a cache's peer must pass, and what
// tests of peers share:
//
//   - [Run], the conformance suite: each sentence of cache.Storage, tried on a
//     real storage that is closed, killed and crashed;
//   - [Memory], the storage in memory, small enough to be believed, for tests and
//     simulations. It can forget everything, lose the last saves as a crash of
//     the machine does, and fail.
//
// Memory promises what cache.Storage promises, as long as nobody makes it lose
// something, and nothing about size. It survives what its test survives.
package cachetest
