// Package protocol is one peer's side of the agreement on which peer fetches a key's
// value, as a state machine: package cache, the runner, calls [Machine.Step] with what happened,
// and does what it returns. The machine has no goroutine, no I/O, no clock and no randomness of its own.
//
// "The original" is node-ha-cache 0.2.4, whose wire protocol this one extends;
// cache/protocol/differences.md compares them. Its peers count only in a mixed cluster ([Setup.Mixed]).
//
// # States
//
// Each key is, at this peer, in one of four states (state.go, changed by setState in key.go):
//
//	idle       nothing continues; there may be a copy
//	follower   a bound voter: its vote is promised to a candidate     giveVote, vote.go
//	           or (boundToFetch) it follows the peer that fetches     follow, fetch.go
//	candidate  this peer asks all members for their votes, or         candidate.go
//	           (not votesRequested) waits for the ceiling of terms first
//	fetching   it has a majority's promises, and calls the origin     fetch.go
//
// # Where a fetch is decided
//
// A fresh or stale hit is answered by package cache (peer.go, clients.go); the machine hears only of misses, refreshes and stale
// hits, of these roughly one per key in 50 ms (recentKeys, clients.go).
//
//	handleGet       get.go        Is the copy here good enough? A stale one is given at once, and a fetch wanted.
//	startCandidacy  candidate.go  May this peer stand now? What speaks against it, in order.
//	ensureCeiling   terms.go      Is the new term below the stored ceiling? If not, [Raise], and handleRaised continues.
//	requestVotes    candidate.go  A [Question] to everyone.
//	handleAnswer    candidate.go  An [Answer]: a yes, a no with the term that is used up there, or a fresh copy elsewhere.
//	fetchIfWon      candidate.go  Has a majority voted for this peer?
//	startFetch      fetch.go      The [StartFetch] effect, which may last until min(trustEnd, fetchUntil).
//
// A voter's answer waits for the ceiling in the same way.
//
// A passive peer ([Setup.Passive]) has no origin. It votes, follows, keeps copies and serves them, and never stands: startCandidacy
// answers a Get for which its copy will not do with a [Refuse] whose Reason is [Passive], and the runner sends the client to another
// peer. After it has served a stale copy, it asks another peer to fetch (requestFetch, get.go). A stopping peer ([Stop]) does the
// same, with the Reason [Stopping], except for keys that it still fetches.
//
// When a voter has a fresh copy, the candidate releases its voters and asks for that (field awaitingCopy): the
// candidacy ends with the [Update], without a fetch. From a voter that refuses, the candidate also requests a copy that has expired
// by its own clock, if that expires later than the one here and a request that waits accepts its expiry (requestOldCopy): by the voter's
// clock it may be fresh. This copy answers those requests; the election continues.
//
// No peer owns a key: any member may stand for it, and outranks (vote.go) decides between two
// candidates: by the higher term, and by their weight only in equal ones. The runner bounds how many calls run at once
// (cache/fetches.go, Config.Fetches); a won key may wait there for a place while its votes stay bound.
//
// The voters decide in handleQuestion (what speaks against any vote) and decideVote (what
// speaks for another candidate). A fetch ends in handleFetched, also at fetchUntil, which is [Timings.FetchTimeout] after
// the start. It ends early in abortFetch: at trustEnd, until when a majority is promised (runKeyTimer; or at once, when
// updateTrust finds it past), because of another peer's fetch in a higher term or of a removal, when this peer stops or the
// call has ended with its trust (abandonFetch), and when this peer's storage is lost (handleLost).
//
// A candidate whose links are down ends with its first election: startCandidacy finds no quorum. A peer that is cut off while its
// links still look up aborts its fetch at trustEnd and stands again. After maxRounds elections
// that nobody won, the last with too few answers (electionTimedOut), it counts as partitioned and refuses requests with
// [Partitioned], until a majority answers its pings (handlePong).
//
// Where another takes over: endFollowing (vote.go) frees a follower, answers the best question that came meanwhile
// (pending), and otherwise this peer stands itself if it wants the value. It is called when the peer to which it is bound
// is silent (runKeyTimer), releases (handleRelease) or has ended (forgetDead), and at a copy that ends the wait
// (handleUpdate).
//
// # Where a copy is decided
//
// [Entry.Newer] (entry.go) is the order of copies. A copy from a peer replaces the one that is here in handleUpdate (copies.go),
// the value that was fetched here in handleFetched (fetch.go), and a removal drops both in dropCopies (removal.go). The runner
// writes to the disk and reads from it: cache/saver.go and load in cache/peer.go. Nothing rests on a stored
// copy: terms have their ceiling, removals their list.
//
// # Where to add an option
//
// A duration that the rules need is a field of [Timings], with its default in WithDefaults and its bounds in
// Validate; anything else that they need is a field of [Setup]. How long a stale copy may be served concerns no
// rule here: package cache raises Get.MinExpire in Peer.Get (peer.go) and handleRequest (clients.go), leaves older copies out in Peek,
// which find (api/cacheget.go) reads for only-if-cached, and declares it in Config (config.go, validate.go). Bytes, value sizes and calls at once are
// bounded by package cache; counts of active keys, failures, removals and waiting requests here. Package cache takes all
// options from cache.Config, and internal/settings declares flag, YAML key and help in one place (and example.yaml, of which
// docs/understudy.yaml is made), with a line in Cache.timings or Cache.Peer: without it a key has no effect. A field of Setup is
// copied in cache/peer.go. What must be remembered of an idle key is a field of [Entry]; what others must know of a
// candidate, of [Question] and cache/wire.
//
// A fetch in spite of a fresh copy needs a Question.MinExpire of at least that copy's expiry (minPeerExpire, newQuestion). So far
// a refresh that waits asks for one, and a question where a copy elsewhere expires too late to be believed. For a fetch that nobody waits for, add a field to key, include it in minPeerExpire, and
// clear it where wanted is cleared. Also change handleGet, which sets wanted for a stale copy only, and handleFetchReq, which
// answers with a fresh copy; all other places compare with minPeerExpire.
//
// A wait of a key is a field of key (key.go), read in next and runKeyTimer (timers.go) only in its state. No timer of its own wakes
// an idle key: it stands when it is asked for, when its vote, fetch or election ends, and in linksChanged (every Hello) if it is
// wanted or waited for. Idle keys are forgotten (schedule); a timer on one takes a place of maxActive, and a restart loses it. What
// depends on when or how often a key is asked for belongs in package cache, which sees every request, and has the machine fetch by a
// [Get], as noteStaleHit (cache/clients.go) does.
//
// A duration that differs by key depends on what rests on it. On how long a value is fresh, nothing does: the origin says
// it ([Fetched], TTL). How long a fetch may last is decided in startFetch, which sets fetchUntil and tells the runner
// (StartFetch.Deadline); runKeyTimer (timers.go) ends the fetch then, and its error names [Timings.FetchTimeout]. An origin that knows
// its keys can give up sooner by itself. Promises rest on AnnounceTimeout: a voter is bound by its own, and the fetcher counts by
// its own, so one for a key would have to travel in [Question] and [Announce].
//
// # Inputs and effects
//
//	input           what it is                      typical effects
//	Get             a client asks                   Reply, or KeepAlive and Send question (if alone, StartFetch)
//	Cancel          it has gone                     –
//	Received        a message from a peer           Send answer, Save, Reply, StartFetch, Abort
//	                Hello: its vote counts          Send hello, and question where requests waited for a majority
//	Link            Up: a connection is made        Send hello, and question as above if the peer has greeted before
//	                Down: it has ended              Abort in a mixed cluster
//	                Dead: the process has ended     its followers are freed (forgetDead): Send answer or question, or
//	                                                Refuse when the majority is gone
//	Unusable        why nothing of a peer is of use –; it is shown in the status
//	Fetched         the origin returned             Save, Send update, Reply; or Refuse
//	                or its call was ended           Send release
//	                or may not be kept (NoStore)    Reply, Send release: peers where others wait fetch in turn
//	Raised          the ceiling of terms is stored  Send question or answer, which waited for it (if alone, StartFetch)
//	                or could not be (Err)           Refuse
//	RemoveKeys      a client removes                SaveRemovals, Send remove, later KeysRemoved
//	ChangeMembers   a new list of members           SaveMembers, MembersChanged
//	Stop            the peer stops                  Send release, Refuse
//	Tick            time has passed (Next)          whatever is due: repeat, announce, give up
//
// The runner carries effects out in their order, but for Abort, Trust and Save, which wait for nothing. What follows a
// SaveRemovals or SaveMembers waits until that is durable, or has failed once: then it goes on, because others still have
// copies and the list is in force. The runner repeats what failed; until that is stored it sends no [Removed], and KeysRemoved
// does not count this peer (cache/effects.go). Raise is answered by Raised.
//
// # What it promises, and under which conditions
//
// A fetch runs in a term of its own, and while it runs no other does, as long as
//   - [Timings.AnnounceTimeout] is the same on every peer: nothing compares it;
//   - clocks that count time run alike within a tenth, and the runner ends a fetch when
//     [StartFetch.Until], moved by [Trust], has come, or at [Abort]: a process that is paused in
//     between fetches on without knowing it;
//   - what the runner says was stored is stored, and a peer that it calls [Dead] has ended;
//   - the list of members changes one member at a time;
//   - the cluster is not mixed ([Setup.Mixed]; differences.md says what holds then).
//
// A term is used once, unless a peer loses its storage and fetches again within twice
// [Timings.AnnounceTimeout] and the clocks' difference. No loss, delay, repetition, reordering
// or partition of messages, no restart, and no step of a wall clock makes two. A copy is
// never replaced by an older one.
//
// # Why two peers do not fetch a key at once
//
//   - A vote is a promise to vote for no other peer for [Timings.AnnounceTimeout], and an
//     [Ack] of an announcement is the same promise again. A fetch may run while a majority is
//     promised, counted from before the question was sent, less a tenth. Two majorities share
//     a peer, and that peer has promised itself to one of the two: this is the kernel's lease,
//     with a majority for a store.
//   - A promise ends early only when the peer that it was made to releases it ([Release]),
//     has ended (its address refuses connections, or it greets as another incarnation), or
//     has fetched or failed to; or when any peer has fetched in the promise's term or a higher one (an
//     [Update]), or, if the promise was made to a peer that fetches, fetches in one (an [Announce]). Then
//     nothing rests on the promise: that other fetch had a majority, which shares at least one peer with every
//     majority that the promise could help to win. The shared peer has been bound to the other fetch since,
//     and gives no more votes in the promise's term.
//   - A peer that starts has forgotten its promises. So it abstains: it votes for no peer for
//     the announce timeout, or until every other member has greeted this incarnation and
//     neither stands nor fetches.
//   - The members are configured; lists that differ by one member still share a peer in any
//     two majorities (members.go has the proof). Others are refused (memberlists.go).
//
// # Terms
//
// Each candidacy has a new term: above all that this peer has seen and not below its wall
// clock in milliseconds, so that a peer that lost its storage does not start again with used
// terms. Terms are used up to a ceiling that is stored ahead ([Raise]), so that no
// election waits for a disk; after a restart every key counts as having used all of them.
// Of two candidates the higher term wins, and of equal terms the peer that rendezvous
// hashing of the key puts first; the other releases its voters and votes for it. If the higher term counts
// as used there (usedTerm), for instance by keys that its table has forgotten, it refuses and goes on. Copies are
// ordered by (term, expiry, digest), the same on every peer whatever the order of arrival. A
// removal is a term, too: older copies are gone, and do not come back.
//
// # How it fails
//
// Without a majority nothing new is fetched; what is here is served. A peer that is cut off
// while it fetches gives the fetch up before the others may start one. When the ceiling cannot
// be stored, the peer neither stands nor votes (handleRaised), and tries again each [Timings.Hello] (runDue). A failed fetch
// is announced ([Failed]), and no peer stands until its back-off has passed. Every message from outside is checked before
// it changes anything: terms a day ahead of the wall clock and copies that expire too late
// are ignored and counted; a peer that is refused votes for such a copy asks again, for a fetch in spite of it (newQuestion).
package protocol
