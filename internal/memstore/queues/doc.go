// Package queues holds the queues of [github.com/understudy-ha/understudy/store/memory], on its table of claims: plain maps
// under the same lock.
package queues
