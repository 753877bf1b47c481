package claim

// Fair is how many keys each member should hold at most.
func (s Share) Fair() int {
	if s.Members <= 1 {
		return s.Held
	}
	return (s.Held + s.Members - 1) / s.Members
}

// Surplus is how many keys the one that asked should give back, so that others
// have as many: what it holds above its fair part, while another holds less than
// its own and finds nothing free.
func (s Share) Surplus() int {
	if s.Members <= 1 || s.Free || s.Least >= s.Held/s.Members {
		return 0
	}
	return max(0, s.Mine-s.Fair())
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
