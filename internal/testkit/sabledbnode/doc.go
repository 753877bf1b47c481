// Package sabledbnode plays SableDB nodes for tests, as far as an agent has to do with them. It is
// written from SableDB's source and is strict: a command that SableDB does not have, or an
// argument that it does not take, is refused and remembered ([Node.Refused]).
//
// Nodes of one [Cluster] copy from each other inside the process, at once: what is left out is the
// private protocol, not its behaviour: every REPLICAOF costs a full copy, which leaves the
// replica with numbers of its own; a replica whose primary is gone keeps what it has and
// says nothing of it. Nothing is promised about anything else.
package sabledbnode
