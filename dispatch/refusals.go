package dispatch

import (
	"maps"
	"time"
)

// maxRemembered bounds what is remembered of messages that were refused or lost, or cannot be asked about, by key; what is beyond is
// tried as often as any other message.
const maxRemembered = 10000

// rememberedFor is how long a refusal is remembered after the last one: by then another instance may have had the message. The
// rest is forgotten by age only where there is no room.
const rememberedFor = 2 * refusedLimit

// refusals are messages whose address refused them for good the last time, by key. What another instance is answered
// meanwhile is not known here: a message is refused a little longer then.
type refusals map[string]refusal

type refusal struct {
	seq         int64
	since, last time.Duration
}

// record notes an answer, and returns for how long the message has been refused without another answer in between.
func (r refusals) record(now time.Duration, a Assignment, refused bool) time.Duration {
	if !refused {
		delete(r, a.Key)
		return 0
	}
	at, known := r[a.Key]
	if !known && len(r) >= maxRemembered {
		maps.DeleteFunc(r, func(_ string, at refusal) bool { return now > at.last+rememberedFor })
	}
	switch {
	case !known && len(r) >= maxRemembered:
		return 0
	case at.seq != a.Seq || now > at.last+rememberedFor: // another message, or it was elsewhere for long
		at = refusal{seq: a.Seq, since: now}
	}
	at.last = now
	r[a.Key] = at
	return now - at.since
}

// counters count how often something befell the head of a key.
type counters map[string]counter

type counter struct {
	seq  int64
	n    int
	last time.Duration
}

// count returns how often by now, as far as this instance knows.
func (c counters) count(now time.Duration, a Assignment) int {
	at, known := c[a.Key]
	if !known && len(c) >= maxRemembered {
		maps.DeleteFunc(c, func(_ string, at counter) bool { return now > at.last+rememberedFor })
	}
	if at.seq != a.Seq {
		at = counter{seq: a.Seq}
	}
	at.n, at.last = at.n+1, now
	if known || len(c) < maxRemembered {
		c[a.Key] = at
	}
	return at.n
}
