// Package cachetest is what every storage of a cache's peer must pass: [Run], the
// conformance suite, tries each sentence of cache.Storage on a real storage that is
// closed, killed and crashed.
package cachetest
