package protocol

// Message is what one peer tells another: one of [Question], [Answer], [EntryReq],
// [Update], [Announce], [Ping] and [Pong], which peers of the original know too,
// and of [Hello], [Ack], [Release], [Failed], [Remove], [Removed], [FetchReq] and
// [MembersList], which they ignore. Terms and times are 0 to [MaxWireNumber].
type Message interface{ message() }

// MaxWireNumber is the largest number that the wire carries.
const MaxWireNumber = 1<<53 - 1

// FixedListNumber is written where versions that numbered their lists of members wrote the number. What others send is
// compared to 0 alone: peers of the original, which have no list, send that.
const FixedListNumber = 1

// Question asks for a vote.
type Question struct {
	Key  string
	Term int64
	// ListNumber is [FixedListNumber]; 0 from peers of the original.
	ListNumber int64
	// MinExpire asks for a copy that expires later than this, in Unix milliseconds,
	// even where one is fresh; 0: any fresh copy will do.
	MinExpire int64
}

// Answer is a vote, and what the voter has.
type Answer struct {
	Key    string
	Term   int64 // of a yes, the question's; of a no, the highest that the voter has used, at least the question's
	Expire int64 // of the voter's copy; 0: it has none
	Yes    bool
}

// EntryReq asks for a copy.
type EntryReq struct{ Key string }

// Update is a copy: to everyone after a fetch, to one peer that asked for it.
type Update struct {
	Key   string
	Entry Entry
}

// Announce says that its sender fetches the key's value.
type Announce struct {
	Key    string
	Term   int64
	Expire int64 // of the copy that is being replaced
	// Stamp is the sender's own clock in milliseconds, for the [Ack]; 0: it wants none.
	Stamp int64
	// ListNumber is [FixedListNumber]; 0 from peers of the original.
	ListNumber int64
}

// Ping asks for a [Pong].
type Ping struct{}

// Pong answers a [Ping].
type Pong struct{}

// Hello says who a peer is and how it fares: when a connection is made, every
// [Timings.Hello], and at once to whoever does not know this incarnation yet.
type Hello struct {
	Incarnation uint64 // random at every start, never 0
	Echo        uint64 // the receiver's incarnation as the sender knows it; 0: unknown
	ListNumber  int64  // [FixedListNumber]
	Members     uint64 // digest of its list of members
	Wall        int64  // its wall clock, Unix milliseconds
	// Busy is that it asks for votes or fetches, whatever the key, or that a fetch
	// from under an earlier list of members may run.
	Busy bool
	// HasStorage reports whether it has storage, and Empty that nothing was in it at its start.
	HasStorage, Empty bool
	// Lost tells the receiver that an earlier life of it had storage, though this one found it empty.
	Lost bool
}

// Ack says that the sender follows the receiver's fetch: for [Timings.AnnounceTimeout] from
// the [Announce] with this stamp it votes for nobody else.
type Ack struct {
	Key   string
	Term  int64
	Stamp int64
}

// Release says that the sender does nothing in this term any more: who voted for it,
// or follows it, is free.
type Release struct {
	Key  string
	Term int64
	// Used is that it may have fetched in this term: no vote is given in it again.
	Used bool
}

// Failed says that the fetch of this term failed and when the next may start.
type Failed struct {
	Key   string
	Term  int64
	Wait  int64 // milliseconds
	Text  string
	Count int64 // failures in a row
}

// Scope is what a removal takes away.
type Scope byte

// The scopes of a removal.
const (
	OneKey    Scope = 'k'
	PrefixKey Scope = 'p' // every key that starts with the name; all keys, when it is empty
	// Everything is for a peer that missed too many removals: all that it has from
	// before. It is not passed on.
	Everything Scope = 'e'
	// Owed is stored only: the peer named must be told to drop Everything, as it has missed removals.
	Owed Scope = 'o'
)

// Removal says that copies made before a term are gone.
type Removal struct {
	Scope Scope
	Name  string
	Term  int64
}

// Remove tells of a removal.
type Remove struct{ Removal Removal }

// Removed confirms a removal: the sender has it, and has stored it if it stores.
type Removed struct{ Removal Removal }

// FetchReq asks for a fetch, of a peer that has no fresh copy either: the sender has given a stale copy, and is
// passive or stops. Where there is a fresh copy, that is the answer.
type FetchReq struct{ Key string }

// MembersList says the sender's list of members, to a peer that has another one.
type MembersList struct {
	Members Members
}

func (Question) message()    {}
func (Answer) message()      {}
func (EntryReq) message()    {}
func (Update) message()      {}
func (Announce) message()    {}
func (Ping) message()        {}
func (Pong) message()        {}
func (Hello) message()       {}
func (Ack) message()         {}
func (Release) message()     {}
func (Failed) message()      {}
func (Remove) message()      {}
func (Removed) message()     {}
func (FetchReq) message()    {}
func (MembersList) message() {}
