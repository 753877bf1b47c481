// Package dns answers who stands behind a role or a shard, to whoever can ask DNS.
//
// Under a zone, such as understudy.internal., there are
//
//	<role>.role.<zone>        who holds the role
//	<shard>.primary.<zone>    where writes of the shard go
//	<shard>.replica.<zone>    the replicas that live and have a whole copy
//
// with these records:
//
//	A, AAAA   of holders whose address is an IP address, with a port or without
//	CNAME     where the one holder's address is a host name; asked for an address, or for it
//	SRV       the port, of holders who tell one; also under _service._proto before the name
//	TXT       term= or epoch=, holder=, address=; one record for each holder
//
// SRV leads to ip-10-0-0-1.<name>, which has the address for as long as a holder does. Names are
// compared without regard to the case of letters. Bytes that are none of a host name's are
// escaped as DNS escapes them (\032 is a space); dots in a name stand between labels.
//
// # What it promises
//
// Answers come from memory: a query costs the store nothing, and waits for nothing. Their
// TTL is what is left of [resolve.Answer.TTL] in whole seconds, rounded down: 0 is good for the one
// who asked. What cannot be believed any more is SERVFAIL. A role or shard that exists, with
// nobody behind it, is NOERROR without records; what does not exist NXDOMAIN; both may be remembered
// for one second. Anything outside the zone is REFUSED: it asks nobody else, and offers no recursion.
//
// Input is only data: what cannot be read is refused or dropped. Every connection has deadlines
// and there are at most so many, each source gets so many answers in a second, and the
// table of sources is bounded. A source that asks more gets truncated answers or none by UDP, so that
// nobody can be flooded in its name, while it can still ask by TCP.
//
// # What it does not promise
//
// Caches that keep answers longer than their TTL (some keep everything for 30 s or more) are
// believed at one's own risk. Answers are not signed: a term that must be right is checked
// where effects land. A CNAME beside SRV and TXT of one name is not what the standard has in mind:
// where holders tell host names, ask SRV under _service._proto.
//
// # States
//
// It has none but those of the resolver it answers from; unread and stale are SERVFAIL.
package dns
