package dispatch

import "time"

// pace is when the target is asked about the messages that it has. A message that is decided early must not wait for a
// question, and one that is never decided must not be asked about each second for ever.
type pace struct {
	scale time.Duration // Config.PollInterval
	first time.Duration // the pause before the first question: learned
	alike int           // first questions in a row that found a fate, or, below 0, that found none
	spent time.Duration // until when the requests that were sent use up what may be sent
}

// slowestPoll is the longest pause between two questions about a message.
const slowestPoll = 30 * time.Second

func newPace(scale time.Duration) pace { return pace{scale: scale, first: scale * 3 / 10} }

// pause before the next question about a message after so many questions.
func (p *pace) pause(asked int) time.Duration {
	if asked == 0 {
		return p.first
	}
	return min(p.scale/4<<min(asked-1, 16), max(slowestPoll, p.scale))
}

// learn moves the first pause to where most fates are there: a question that came too early costs a whole pause, so it
// grows fast, and shrinks slowly while all goes well, until about one in twenty comes too early. A run of the same
// answers makes the steps larger, because the target has become slower, or faster.
func (p *pace) learn(decided bool) {
	if decided != (p.alike > 0) {
		p.alike = 0
	}
	if decided {
		p.alike++
		p.first -= time.Duration(float64(p.first) * min(0.0001*float64(p.alike), 0.03))
	} else {
		p.alike--
		p.first += time.Duration(float64(p.first) * 0.05 * float64(-p.alike))
	}
	p.first = min(max(p.first, p.scale/20), p.scale)
}

// next is when a status query may be sent: two for each Config.PollInterval, one of them ahead of time.
func (p *pace) next() time.Duration { return p.spent - p.scale/2 }

func (p *pace) spend(now time.Duration) { p.spent = max(p.spent, now) + p.scale/2 }
