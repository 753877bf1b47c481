// Package dns answers DNS queries for the holders of roles and the nodes of shards.
//
// A zone, such as understudy.internal., contains
//
//	<role>.role.<zone>        the holders of the role
//	<shard>.primary.<zone>    the primary, for writes
//	<shard>.replica.<zone>    the live replicas that have a whole copy
//
// with these records:
//
//	A, AAAA   for holders whose address is an IP address, with or without a port
//	CNAME     where the only holder's address is a host name; for A, AAAA and CNAME queries
//	SRV       the port, for holders that have one; also under _service._proto before the name
//	TXT       term= or epoch=, holder=, address=; one record for each holder
//
// SRV leads to ip-10-0-0-1.<name>, which has the address as long as a holder does. Names are
// not case-sensitive. Bytes that cannot be in a host name are
// escaped as in DNS (\032 is a space); dots in a name separate labels.
//
// # What it promises
//
// Answers come from memory: a query costs the store nothing and never waits. Their
// TTL is the rest of [resolve.Answer.TTL] in whole seconds, rounded down; 0 is valid for this
// query only. A stale answer is SERVFAIL. A role or shard without a
// holder is NOERROR without records, one that does not exist NXDOMAIN; both may be cached
// for one second. A name outside the zone is REFUSED: the server does no recursion.
//
// Malformed queries are refused or dropped. Connections have deadlines
// and a bound, answers per second and source address are limited, and the
// table of sources is bounded. Beyond the limit a source gets truncated answers or none over UDP, so that
// the server cannot be used to flood another host, and can still ask over TCP.
//
// # What it does not promise
//
// Some caches keep answers longer than their TTL (30 s or more): using them is
// at your own risk. Answers are not signed: check the term where effects
// land. A CNAME beside SRV and TXT records of one name breaks the DNS standard:
// where holders have host names, query SRV under _service._proto.
//
// # States
//
// Only those of its resolver; unread and stale are SERVFAIL.
package dns
