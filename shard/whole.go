package shard

// Whole tells whether a node that shows this state has all that it had when it was
// last seen well; it is what [Record.Synced] says. A replica that was restarted from a copy
// on disk may have lost anything, until it has been in touch with its primary again or shows that it
// stands where it stood. Of a full copy that was begun the engine tells whether it has ended, as long as the
// process lives that began it; after a restart it counts as a part.
func (m Memory) Whole(s State) bool {
	linked := s.Role == Replica && s.Link != nil && s.Link.Up && !s.Link.Syncing
	switch {
	case !s.Synced || s.Loading || s.Link != nil && s.Link.Syncing:
		return false
	case linked:
		return true
	case m.Copying && (s.Run == "" || s.Run != m.Run):
		return false
	case m.Lineage.ID == "" || s.Run != "" && s.Run == m.Run:
		return true
	}
	return s.Lineage.ID == m.Lineage.ID && s.Txn >= m.Txn
}

// GoesOn tells that a primary is the same process as before and has lost nothing, whatever its
// lineage is called: Redis begins a new one when a replica comes after there was none for
// long, and forgets the one before.
func (m Memory) GoesOn(s State) bool {
	return s.Role == Primary && s.Run != "" && s.Run == m.Run && s.Before.ID == "" && s.Txn >= m.Txn && !s.Loading
}

// Note returns the memory after the node showed this state. What it had is remembered as long
// as it has not proved that it has it still: as the primary, under its lease, or in touch with one.
func (m Memory) Note(s State, holding bool) Memory {
	if s.Role == Replica && s.Link != nil && s.Link.Syncing {
		m.Copying = true
	}
	linked := s.Role == Replica && s.Link != nil && s.Link.Up && !s.Link.Syncing
	if s.Loading || !linked && !(s.Role == Primary && holding) && !m.Whole(s) {
		return m
	}
	m.Copying = false
	m.Run, m.Lineage, m.Txn, m.Keys = s.Run, s.Lineage, s.Txn, s.Keys
	return m
}
