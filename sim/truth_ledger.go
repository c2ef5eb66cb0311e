package sim

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/sim/history"
)

// lists is told when a process looks at what the copy store has of a tenant, which the
// opening does first. If it was granted
// an epoch that is there already, or the tenant is marked, it has to refuse.
func (t *truth) lists(p *process, key coord.Key) {
	record, known := t.w.leases.record(key)
	if !known || record.Owner != p.id || p.router.HandleOf(key) != nil {
		return
	}
	_, marked := t.w.copies.objects[key.String()+"/rolled-back.json"]
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.mu.tenants[key]
	tenure := coord.Tenure{Key: key, Owner: p.id, Epoch: record.Epoch}
	if first := !s.listed[tenure]; first && (marked || record.Epoch <= t.w.copies.newest(key)) {
		s.refuses[p.id] = true
	}
	s.listed[tenure] = true
}

// openEnded is told how an opening ended.
func (t *truth) openEnded(p *process, key coord.Key, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.mu.tenants[key]
	if !s.refuses[p.id] || errors.Is(err, context.DeadlineExceeded) { // somebody's patience is no end
		return
	}
	delete(s.refuses, p.id)
	switch coord.CodeOf(err) {
	case coord.CodeEpochRolledBack, coord.CodeLeaseLost, coord.CodeCopyStoreUnavailable, coord.CodeRouterClosed, coord.CodeFenced, coord.CodeLeaseStoreUnavailable:
	case coord.CodeLeaseHeld: // of a later one, after somebody lost patience with that
	default:
		t.complainLocked(closedTenant, key, "%s saw that, and its opening ended with: %v", p.id, err)
	}
}

// writes notes when a value is first written at an epoch.
func (t *truth) writes(tenure coord.Tenure, value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := entry{value, tenure.Epoch}
	if _, again := t.mu.tenants[tenure.Key].invoked[e]; !again {
		t.mu.tenants[tenure.Key].invoked[e] = t.w.now()
	}
}

// opens reports whether somebody should read what the tenure started from.
func (t *truth) opens(tenure coord.Tenure) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.mu.tenants[tenure.Key]
	by, again := s.opened[tenure.Epoch]
	s.opened[tenure.Epoch] = tenure.Owner
	if again && by != tenure.Owner {
		t.complainLocked(oneLine, tenure.Key, "%s and %s both serve epoch %d", by, tenure.Owner, tenure.Epoch)
	}
	return !again
}

// started is told what a tenure started from: all that its ledger has of earlier epochs.
func (t *truth) started(source string, tenure coord.Tenure, entries []entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.mu.tenants[tenure.Key]
	for _, e := range entries {
		t.w.record(source, history.Event{Kind: history.Commit, Tenant: s.name, Replica: tenure.Owner, Epoch: tenure.Epoch, Value: e.value})
		if e.epoch <= s.floor && tenure.Epoch > s.floor {
			t.complainLocked(history.ForgottenStays, tenure.Key, "%s at epoch %d has %s of epoch %d", tenure.Owner, tenure.Epoch, e.value, e.epoch)
		}
		t.checkSupersededLocked(s, tenure, e)
	}
	if s.last != nil && s.last.epoch < tenure.Epoch {
		if s.last.epoch > s.floor && !s.damaged {
			t.checkLineLocked(s, tenure, entries)
		}
	}
	if s.last == nil || s.last.epoch < tenure.Epoch {
		s.last = &contents{epoch: tenure.Epoch, entries: entries}
	}
}

// checkSupersededLocked complains about a value that was written after a later grant.
func (t *truth) checkSupersededLocked(s *tenantTruth, tenure coord.Tenure, e entry) {
	for _, later := range slices.Sorted(maps.Keys(s.granted)) {
		if later > e.epoch && s.invoked[e] > s.granted[later] {
			t.complainLocked(history.SupersededIsNowhere, tenure.Key,
				"%s at epoch %d has %s, which epoch %d began to write after the grant of epoch %d", tenure.Owner, tenure.Epoch, e.value, e.epoch, later)
			return
		}
	}
}

// checkLineLocked compares with what an earlier tenure started from: of the epochs before
// that one, both have the same.
func (t *truth) checkLineLocked(s *tenantTruth, tenure coord.Tenure, entries []entry) {
	var old []entry
	for _, e := range entries {
		if e.epoch < s.last.epoch {
			old = append(old, e)
		}
	}
	if !slices.Equal(old, s.last.entries) {
		t.complainLocked(oneLine, tenure.Key, "of what was before epoch %d, epoch %d has %d values, and epoch %d had %d",
			s.last.epoch, tenure.Epoch, len(old), s.last.epoch, len(s.last.entries))
	}
}

// checkSwept complains about what a forget left behind, if the tenant was granted since
// nothing went wrong any more, and opened.
func (t *truth) checkSwept(key coord.Key) {
	t.mu.Lock()
	s := t.mu.tenants[key]
	floor, granted, serves := s.floor, s.granted[s.newest], s.opened[s.newest] != ""
	t.mu.Unlock()
	if !serves || granted <= t.w.lastHarm || len(t.w.late) > 0 {
		return
	}
	for _, name := range t.w.copies.names(key.String() + "/") {
		if e := epochOf(name); e > 0 && e <= floor {
			t.complain(sweptAway, key, "%s is there, and everything up to epoch %d was forgotten", name, floor)
			return
		}
	}
}
