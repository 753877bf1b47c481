// Package proxy leads clients that know nothing of failovers to a shard's primary: it
// listens, connects each client to whatever node is the primary then, and copies bytes both ways.
//
// # What it promises
//
// A new connection leads to the node that the shard names as its primary when it is
// made. While there is none, it waits for one, for a bounded time, and is closed then. When
// the primary changes, or starts to be replaced, connections to the old one are closed at once,
// whether it answers or not: clients connect again, and find the new one. An end of
// sending in one direction is passed on, and the other direction continues. With
// [Replicas], connections are spread over the replicas that have a whole copy, and lead to
// the primary while there is none.
//
// # What it does not promise
//
// It does not understand what is said. A request on its way when a connection is
// closed may have been carried out or not, as with any connection that breaks. Nor does it keep a
// deposed node from accepting writes of others: its fence does.
//
// # How it fails
//
// While its source of views is cut off from the store, it continues with what was known last: connections stay, and
// new ones lead to the same node. At the limit of connections new ones are closed at once.
package proxy
