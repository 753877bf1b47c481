// Package catalog keeps the views of all shards of a registry in memory, for readers that cost the store nothing: the
// Sentinel endpoints, the local proxy, the API and the names service.
//
// It reads all shards every interval, and at once those that the store says have changed. While the store is down
// it keeps what it had. What it holds belongs to all readers, who do not change it. It promises no more
// than a view of a recent moment: whether a primary still holds is for its lease and its fence to say.
package catalog
