// Package store says what every store is, beyond the ports of the parts that it
// serves: it tells about itself, brings its schema up to date, and closes.
//
// The adapters are the packages below this one, one for each database. Each is a
// [Store], keeps [Shards] and [Tokens], and offers more where its database can:
// [Queues], [Monitors], [Jobs], [Checkups]. Package store/open picks one by URL.
package store
