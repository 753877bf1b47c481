package claim

// FairCount is how many keys each member should hold at most: the mean, rounded up.
func (s Share) FairCount() int {
	if s.Members <= 1 {
		return s.Held
	}
	return (s.Held + s.Members - 1) / s.Members
}

// Surplus is how many keys the member should release, so that others have as many.
// While there are free keys, members that lack some claim those instead; a
// difference of one is fair.
func (s Share) Surplus() int {
	fair := s.FairCount()
	switch {
	case s.Members <= 1, s.Free, s.Mine < fair, s.Mine-s.Least < 2:
		return 0
	case s.Mine == fair && s.Held%s.Members != 0:
		// The shares are uneven and another member has at least two fewer: everyone at
		// the rounded-up share gives one.
		return 1
	default:
		return s.Mine - fair
	}
}

// Fresh is how many of the keys that became free a moment ago the member may claim:
// what it lacks. It claims others only after [Linger], so that what one member
// releases goes to the member that lacks it.
func (s Share) Fresh(most int) int {
	if s.Members <= 1 || s.Least >= s.Mine {
		return most
	}
	return min(most, max(0, s.FairCount()-s.Mine))
}
