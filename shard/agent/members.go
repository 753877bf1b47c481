package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/understudy-ha/understudy/shard"
)

// membership keeps the row's members, and the name of the lineage, as they are. The primary's agent does so.
type membership struct {
	*common
	probe     *nodeProbe
	view      *viewCache
	lease     *shardLease
	report    *reporter
	reconcile *reconciler

	triedAt time.Duration
}

func (m *membership) step(now time.Duration) {
	if !m.lease.isValid() || m.reconcile.isTaskRunning() || m.report.failing != 0 || m.busy[workAdmitMembers] ||
		!m.view.isPrimary() || m.view.Row.Plan != nil || now < m.triedAt+m.cfg.Timing.Interval/4 {
		return
	}
	row, changed := m.view.AdmitMembers(max(0, m.cfg.ForgetAfter))
	if m.folder.state().IsUninterrupted(m.probe.state) {
		renamed, news := row.RenameLineage(m.probe.state.Lineage, m.probe.state.Txn)
		row, changed = renamed, changed || news
	}
	if !changed {
		return
	}
	m.triedAt = now
	// Until the outcome is known, all that may have been admitted must promise before this primary relies on it.
	m.view.addPending(row.Members)
	m.background(workAdmitMembers, m.cfg.storeTimeout(), func(ctx context.Context) func() {
		rev, err := m.cfg.Registry.UpdateRow(ctx, shard.RowUpdate{Row: row})
		return func() {
			m.report.reread = true
			if err == nil {
				row.Rev = rev
				m.onRow(row)
			}
		}
	})
}

// others are all who might replace this primary: the members, and those whose admission was decided without
// an answer.
func (m *membership) others() []shard.Member {
	all := append(slices.Clone(m.view.Row.Members), m.view.pendingMembers...)
	slices.SortStableFunc(all, func(x, y shard.Member) int { return strings.Compare(x.ID, y.ID) })
	all = slices.CompactFunc(all, func(x, y shard.Member) bool { return x.ID == y.ID })
	return slices.DeleteFunc(all, func(x shard.Member) bool { return x.ID == m.id })
}
