package dispatch

import "time"

// limiter bounds the submissions that this instance starts per second; a rate of 0 does not.
type limiter struct {
	rate   float64
	tokens float64
	at     time.Duration
	ran    bool
}

// allow returns how many may start now, at most n.
func (l *limiter) allow(now time.Duration, n int) int {
	if l.rate == 0 {
		return n
	}
	l.refill(now)
	return min(n, int(l.tokens))
}

func (l *limiter) refill(now time.Duration) {
	if !l.ran {
		l.ran, l.at, l.tokens = true, now, 1
	}
	burst := max(1, l.rate/10)
	l.tokens = min(burst, l.tokens+(now-l.at).Seconds()*l.rate)
	l.at = now
}

func (l *limiter) spend(n int) { l.tokens -= float64(n) }

// next is when one more may start.
func (l *limiter) next(now time.Duration) time.Duration {
	if l.rate == 0 {
		return now
	}
	l.refill(now)
	if l.tokens >= 1 {
		return now
	}
	return now + time.Duration((1-l.tokens)/l.rate*float64(time.Second)) + time.Millisecond
}
