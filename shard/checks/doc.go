// Package checks answers load balancers and people over HTTP about the node beside which an
// agent stands, in the shape in which Patroni does, and carries the promises by which a primary continues
// without its store.
//
// # Checks
//
// GET, HEAD and OPTIONS. 200 is yes and 503 is no; the body of a GET says of the node
// what GET /patroni does.
//
//	/ /primary /read-write /master  writes go here: the agent trusts its hold of the shard's lease (or has
//	                                 the promises of all members while the store is down), the node is up, it is
//	                                 a primary, and its fence is not closed
//	/leader                          the agent trusts its hold, whatever the node does
//	/replica /async /asynchronous    a replica that is up and has a whole copy.
//	                                 ?lag=N[kB|MB|GB]: that lacks at most so much of what its primary is known to
//	                                 have; without a known primary that cannot be told, and the answer is no.
//	                                 ?tag_NAME=VALUE: never, as no node has tags
//	/read-only                       either of the two
//	/read-only-sync                  the primary only, as no replica is the synchronous one
//	/sync /synchronous               never
//	/standby-leader                  never: there are no standby clusters
//	/health                          the node is up
//	/liveness                        the agent's loop went round within its timeout T (2·T beside a replica)
//	/readiness                       the node takes writes, or is up while the store answers
//
// Sizes are in what the engine counts: bytes of replication on Redis, transactions on
// SableDB. A pause of the shard keeps it from failing over by itself and changes no answer.
//
// # Information
//
//	GET  /patroni   the node as Patroni would tell of it
//	GET  /cluster   all nodes, likewise
//	GET  /history   the last change of primary
//	GET  /status    everything that the agent knows, in its own words
//	GET  /metrics   Config.Metrics
//	POST /failsafe  a promise is asked for: {"promise":{…},"mac":"…"} is answered by {"mac":"…"}, or with
//	                409 and {"why":"…"}
//
// # What it promises
//
// A node from which /primary is answered with 200 was one that its agent could prove to be the
// shard's only primary a moment before. During a failover there is a time in which no
// node says so; there is none in which two do, but for the time that an answer needs to arrive. The
// secret by which agents know each other is shown to nobody.
//
// # What it does not promise
//
// An agent that has died answers nothing, although its node may be well and remain the
// primary: a load balancer then finds no primary until the agent is started again.
// Nothing but promises is authenticated: listen where only those can connect who may know what is
// told here.
//
// # How it fails
//
// Bodies are bounded at 4 kB, and no request changes anything but the promises that the agent
// gives, which are authenticated.
package checks
