// Package sentinel answers clients that find a primary through Redis Sentinel: to them,
// shards are masters, and this endpoint is a Sentinel that knows them all.
//
// # What is answered
//
//	SENTINEL get-master-addr-by-name|master|masters|replicas|slaves|sentinels|ckquorum|myid|
//	         is-master-down-by-addr|failover|pending-scripts|help
//	SUBSCRIBE PSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE
//	PING AUTH HELLO CLIENT (SETNAME GETNAME SETINFO ID NO-EVICT NO-TOUCH) ROLE INFO COMMAND RESET QUIT
//
// in RESP 2 and 3, with errors in the words of Redis 7.0. Commands that would configure a
// Sentinel are refused. Messages are those of Sentinel, in its order:
//
//	+switch-master NAME OLDHOST OLDPORT HOST PORT   the one that clients act on
//	+monitor -monitor +sdown -sdown +odown -odown +reboot +new-epoch +try-failover
//	+promoted-slave +failover-end -failover-abort-no-good-slave +slave +slave-reconf-done
//
// and +replica-reconf-done beside the last, as go-redis listens to that. An address is two
// words, an IPv6 host without brackets; host names are given as they are.
//
// # A primary that is not there
//
// From when a primary is known to be over until its successor may be written to,
// get-master-addr-by-name answers that there is none (nil), and MASTERS shows it as o_down. Sentinel
// itself continues naming the old one. Clients do better without: those that ask by address (go-redis,
// ioredis, jedis) fail or try again at once instead of waiting for a dead host's connection to time out, and are
// not led to a node that would refuse their writes; redis-py, which reads MASTERS, raises MasterNotFoundError either way. While a
// switchover still waits for its replica, the old primary is named: it only lets writes
// wait. While the store is down, what was known last is answered, by an agent for T after
// its last answer or promise.
//
// # What it promises
//
// An address is named only if the shard's row names its node as opened for writes and nothing
// speaks against it. +switch-master is sent after the new address is answered, so that a
// client that asks because of it gets no older answer. Whatever a client sends, others are
// answered: connections, lines, arguments, subscriptions and what waits to be written are
// bounded; a subscriber that does not read is disconnected.
//
// # What it does not promise
//
// Messages are sent to those who are connected, and changes that follow each other
// within milliseconds may be told as one. Only +switch-master is told also to those who asked for the address before
// it, and subscribe on the same connection within 10 s after it: they must not miss what
// happened in between. Sentinels of Redis cannot form a quorum with this endpoint: it
// tells them what it knows, and votes for nobody. A quorum is always 1 here, since the store
// has decided already.
package sentinel
