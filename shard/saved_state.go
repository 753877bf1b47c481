package shard

import "time"

// SavedState is what an agent keeps on disk beside its node, so that a node which comes back
// is known again.
type SavedState struct {
	NodeID  string  `json:"node_id"`
	Shard   string  `json:"shard"`
	Epoch   int64   `json:"epoch"`         // the highest that was seen
	Led     int64   `json:"led,omitempty"` // the latest of which the node was the primary
	Run     string  `json:"run,omitempty"`
	Lineage Lineage `json:"lineage"`
	Txn     int64   `json:"txn"`
	Keys    int64   `json:"keys"`
	// PrimaryLog is the latest that is known of the shard's primary, be it this node or another.
	PrimaryLog PrimaryLog `json:"primary_log,omitzero"`
	// Copying: a full copy was started, and has not ended.
	Copying bool `json:"copying,omitempty"`
	// Promised until this reading of the boot clock of this boot, not to replace
	// the primary; see [Promise]. 0: no promise holds.
	Promised time.Duration `json:"promised_ns,omitempty"`
	Boot     string        `json:"boot,omitempty"`
	// Asked is the Promise.Seq of the latest question that was answered, under AskedEpoch.
	Asked      int64 `json:"asked,omitempty"`
	AskedEpoch int64 `json:"asked_epoch,omitempty"`
}

// HasAllData reports whether a node that shows this state has all that it had when it was
// last seen well; it is what [Record.Synced] says. A replica that was restarted from a copy
// on disk may have lost anything, until it has been in touch with its primary again or shows that it
// stands where it stood. Of a full copy that was started the engine reports whether it has ended, as long as the
// process lives that began it; after a restart it counts as a part.
func (saved SavedState) HasAllData(s State) bool {
	linked := s.Role == Replica && s.Link != nil && s.Link.Up && !s.Link.Syncing
	switch {
	case !s.Synced || s.Loading || s.Link != nil && s.Link.Syncing:
		return false
	case linked:
		return true
	case saved.Copying && (s.Run == "" || s.Run != saved.Run):
		return false
	case s.Role == Primary && s.Before.ID == saved.Lineage.ID && saved.Lineage.ID != "" && s.Before.End >= saved.Txn && s.Txn >= saved.Txn:
		return true // it was promoted out of that
	case saved.Lineage.ID == "" || s.Run != "" && s.Run == saved.Run:
		return true
	}
	return s.Lineage.ID == saved.Lineage.ID && s.Txn >= saved.Txn
}

// IsUninterrupted reports whether a primary is the same process as before and has lost nothing, whatever its
// lineage is called: Redis starts a new one when a replica comes after there was none for
// long, and forgets the one before.
func (saved SavedState) IsUninterrupted(s State) bool {
	return s.Role == Primary && s.Run != "" && s.Run == saved.Run && s.Before.ID == "" && s.Txn >= saved.Txn && !s.Loading
}

// Updated returns what to save after the node showed this state. What it had stays saved as long
// as it has not proved that it has it still: as the primary, under its lease, or in touch with one.
func (saved SavedState) Updated(s State, holding bool) SavedState {
	if s.Role == Replica && s.Link != nil && s.Link.Syncing {
		saved.Copying = true
	}
	linked := s.Role == Replica && s.Link != nil && s.Link.Up && !s.Link.Syncing
	if s.Loading || !linked && !(s.Role == Primary && holding) && !saved.HasAllData(s) {
		return saved
	}
	saved.Copying = false
	saved.Run, saved.Lineage, saved.Txn, saved.Keys = s.Run, s.Lineage, s.Txn, s.Keys
	return saved
}

// HasAnswered reports whether the question, or a later one, was answered before.
func (saved SavedState) HasAnswered(p Promise) bool {
	return saved.AskedEpoch == p.Epoch && p.Seq <= saved.Asked
}
