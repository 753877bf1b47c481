package claim

// Fair is how many keys each member should hold at most.
func (s Share) Fair() int {
	if s.Members <= 1 {
		return s.Held
	}
	return (s.Held + s.Members - 1) / s.Members
}

// Surplus is how many keys the one that asked should give back, so that others
// have as many. While there are free keys, who lacks some takes those; a
// difference of one is fair.
func (s Share) Surplus() int {
	fair := s.Fair()
	switch {
	case s.Members <= 1, s.Free, s.Mine < fair, s.Mine-s.Least < 2:
		return 0
	case s.Mine == fair && s.Held%s.Members != 0:
		return 1 // the parts do not come out even, and somebody lacks more than that
	default:
		return s.Mine - fair
	}
}

// Fresh is how many keys, of those that became free a moment ago, the one that
// asked may take: what it lacks. It takes others only after they have lain for a
// while, so that what one member gives back goes to the member that lacks it.
func (s Share) Fresh(most int) int {
	if s.Members <= 1 || s.Least >= s.Mine {
		return most
	}
	return min(most, max(0, s.Fair()-s.Mine))
}
