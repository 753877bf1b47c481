package shard

import (
	"fmt"
	"time"
)

// AppendLog is how far a node's append-only log reaches on its disk. It only grows, unless its data folder is replaced.
type AppendLog struct {
	File int64 `json:"file,omitempty"` // number of its latest file; every rewrite starts a new one
	Size int64 `json:"size,omitempty"` // of that file, in bytes
}

// Lacks reports whether the log does not reach as far as the other.
func (l AppendLog) Lacks(o AppendLog) bool {
	return l.File < o.File || l.File == o.File && l.Size < o.Size
}

// PrimaryLog is how far the log of a primary reached while it led. Every member's agent keeps the latest in its data
// folder: a primary that restarts from its log has a new lineage, which starts at 0, and its own agent's file may come
// from the same backup as its data.
type PrimaryLog struct {
	Node string `json:"node,omitempty"` // whose it is
	// At is when it was observed, in microseconds, by the store's clock.
	At int64 `json:"at,omitempty"`
	// Boot of the host on which it was observed.
	Boot string `json:"boot,omitempty"`
	// Written survives the end of the process.
	Written AppendLog `json:"written,omitzero"`
	// Synced survives the end of the host: it was written [SyncTime] before.
	Synced AppendLog `json:"synced,omitzero"`
}

// SyncTime is how long what a node has written may not be on its disk yet: Redis syncs every second by default, and
// puts that off while the disk is busy.
const SyncTime = 3 * time.Second

// LogReader is an engine whose nodes keep an append-only log on their host, and tell where.
type LogReader interface {
	// ReadLog returns how far the log reaches which a node of this host told of ([State.LogPath]).
	ReadLog(path string) (AppendLog, error)
}

// shorterLog is why a primary must not lead that was restarted from its log, so that its lineage does not tell where it
// stands: the log is shorter than it was, and a member may have more. Whoever is chosen without being looked at may be
// the one that has less.
func (v View) shorterLog(me Self) string {
	if _, certain := v.leastOf(me); certain || me.DiscardData {
		return ""
	}
	had, known := v.latestLog(me)
	if !known || !me.State.AppendLog.Lacks(had) {
		return ""
	}
	for _, m := range v.Row.Members {
		r, reports := v.Node(m.ID)
		if m.ID == me.ID || reports && r.Live() && r.Condition == Up && r.Keys == 0 {
			continue
		}
		return fmt.Sprintf("it was restarted with less than it had (its log is shorter), and node %.8s at %s may have more. Compare them, and choose: understudy shard failover %s --to NODE --force",
			m.ID, m.Address, v.Row.Name)
	}
	return ""
}

// latestLog is how far the log of a restarted primary certainly reached, as its members and its own agent know.
func (v View) latestLog(me Self) (AppendLog, bool) {
	var last PrimaryLog
	for _, r := range v.Nodes {
		if l := r.PrimaryLog; l.Node == me.ID && l.At > last.At {
			last = l
		}
	}
	if last.Boot != "" && last.Boot == me.Saved.Boot {
		return last.Written, true
	}
	return last.Synced, last.Node != ""
}
