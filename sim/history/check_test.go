package history_test

import (
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/sim/history"
)

// SI-3: each invariant has histories that its check must refuse, and a neighbour of each
// that no check may refuse.
func TestCheck(t *testing.T) {
	tests := []struct {
		name   string
		breaks history.Invariant // "" for a history without a violation
		script func(s *script)
	}{
		{"TimeGoesBack", history.WellFormed, func(s *script) { s.append(1, 1, "a"); s.now = 0; s.append(1, 2, "b") }},
		{"ReturnWithoutInvocation", history.WellFormed, func(s *script) {
			s.ok(history.Event{Tenant: tenant, Op: 7, Call: history.Append, Value: "a"}, 1, 1)
		}},

		{"TwoOwnersAcknowledge", history.ProvableTenure, func(s *script) {
			s.append(1, 1, "a")
			s.append(2, 2, "b")
			s.append(1, 2, "c")
		}},
		{"CallsOfTwoEpochsOverlap", "", func(s *script) {
			s.append(1, 1, "a")
			late := s.begin(history.Append, "c")
			s.append(2, 1, "b")
			s.ok(late, 1, 2)
		}},
		{"AcknowledgedAfterTheNextGrant", history.ProvableTenure, func(s *script) {
			s.grant(1, "A")
			s.grant(2, "B")
			s.append(1, 1, "a")
		}},
		{"AcknowledgedWhileTheNextIsGranted", "", func(s *script) {
			s.grant(1, "A")
			a := s.begin(history.Append, "a")
			s.grant(2, "B")
			s.ok(a, 1, 1)
		}},
		{"AcknowledgedAfterTheEnd", history.ProvableTenure, func(s *script) { s.grant(1, "A"); s.end(1, false); s.append(1, 1, "a") }},
		{"AcknowledgedBeforeTheEnd", "", func(s *script) { s.grant(1, "A"); s.append(1, 1, "a"); s.end(1, false) }},
		{"HandedOffAfterTheEnd", "", func(s *script) {
			s.grant(1, "A")
			s.append(1, 1, "a")
			s.call(history.Snapshot, 1)
			s.end(1, false)
			s.call(history.Handoff, 1)
			s.grant(2, "B")
			s.read(2, "a")
		}},
		{"HandedOffAfterTheNextGrant", history.ProvableTenure, func(s *script) {
			s.grant(1, "A")
			s.end(1, false)
			s.grant(2, "B")
			s.call(history.Handoff, 1)
		}},
		{"AcknowledgedAtNoEpoch", history.ProvableTenure, func(s *script) { s.grant(1, "A"); s.append(2, 1, "a") }},
		{"AcknowledgedByAnother", history.ProvableTenure, func(s *script) {
			s.grant(1, "A")
			s.Return(s.begin(history.Append, "a"), history.Event{Outcome: history.OK, Epoch: 1, Replica: "B"})
		}},

		{"CopyLost", history.Durable, func(s *script) { s.append(1, 1, "a"); s.call(history.Snapshot, 1); s.read(2) }},
		{"CopyLostThreeEpochsOn", history.Durable, func(s *script) {
			s.append(1, 1, "a")
			s.call(history.Snapshot, 1)
			s.read(2, "a")
			s.append(3, 2, "b")
			s.read(4, "b")
		}},
		{"HandoffLost", history.Durable, func(s *script) { s.append(1, 1, "a"); s.call(history.Handoff, 1); s.read(2) }},
		{"HandoffLostWhatWasAnsweredLate", history.Durable, func(s *script) {
			a := s.begin(history.Append, "a")
			s.call(history.Handoff, 1)
			s.ok(a, 1, 1)
			s.read(2)
		}},
		{"FlushedEndLost", history.Durable, func(s *script) { s.grant(1, "A"); s.append(1, 1, "a"); s.end(1, true); s.read(2) }},
		{"CrashLosesWhatNoCopyHas", "", func(s *script) {
			s.append(1, 1, "a")
			copied := s.begin(history.Snapshot, "")
			s.append(1, 2, "b")
			s.ok(copied, 1, 0)
			s.read(2, "a")
			s.append(2, 2, "c")
		}},
		{"CopyDestroyed", "", func(s *script) {
			s.append(1, 1, "a")
			s.call(history.Snapshot, 1)
			s.Record(history.Event{Kind: history.Damage, Tenant: tenant, Epoch: 1})
			s.read(2)
		}},

		{"SupersededCommitServed", history.SupersededIsNowhere, func(s *script) {
			s.grant(1, "A")
			a := s.begin(history.Append, "a")
			s.grant(2, "B")
			s.commit(1, "a")
			s.ends(a, history.Unknown)
			s.read(2, "a")
		}},
		{"SupersededCommitRetried", "", func(s *script) {
			s.grant(1, "A")
			a := s.begin(history.Append, "a")
			s.grant(2, "B")
			s.commit(1, "a")
			s.ends(a, history.Unknown)
			retry := s.begin(history.Append, "a")
			s.commit(2, "a")
			s.ok(retry, 2, 1)
			s.read(2, "a")
		}},

		{"EpochTwice", history.EpochsInOrder, func(s *script) { s.grant(1, "A"); s.grant(1, "B") }},
		{"EpochSkipped", history.EpochsInOrder, func(s *script) { s.grant(1, "A"); s.grant(3, "B") }},
		{"FirstEpochNotOne", history.EpochsInOrder, func(s *script) { s.grant(2, "A") }},
		{"RaisedTooLittle", history.EpochsInOrder, func(s *script) {
			s.grant(1, "A")
			s.Record(history.Event{Kind: history.Raise, Tenant: tenant, Epoch: 7})
			s.grant(2, "B")
		}},
		{"Raised", "", func(s *script) {
			s.grant(1, "A")
			s.Record(history.Event{Kind: history.Raise, Tenant: tenant, Epoch: 7})
			s.grant(8, "B")
			s.grant(9, "A")
		}},

		{"ForgottenIsBack", history.ForgottenStays, func(s *script) { s.append(1, 1, "a"); s.call(history.Forget, 1); s.read(2, "a") }},
		{"ForgottenEpochServes", history.ForgottenStays, func(s *script) { s.append(1, 1, "a"); s.call(history.Forget, 1); s.read(1, "a") }},
		{"ForgottenRegisterIsBack", history.ForgottenStays, func(s *script) { s.set(1, "x"); s.call(history.Forget, 1); s.get(2, "x") }},
		{"WrittenAgainAfterForget", "", func(s *script) {
			s.append(1, 1, "a")
			s.call(history.Snapshot, 1)
			s.call(history.Forget, 1)
			s.append(2, 1, "a")
			s.read(2, "a")
		}},
		{"ForgottenPerhaps", "", func(s *script) {
			s.append(1, 1, "a")
			s.call(history.Snapshot, 1)
			s.ends(s.begin(history.Forget, ""), history.Unknown)
			s.read(2)
		}},

		{"DoesNotServe", history.ServesAgain, func(s *script) {
			s.append(1, 1, "a")
			s.Record(history.Event{Kind: history.Healed, Within: 3 * time.Millisecond})
			s.ends(s.begin(history.Append, "b"), history.Failed)
			s.append(2, 2, "c")
		}},
		{"ServesInTime", "", func(s *script) {
			s.append(1, 1, "a")
			s.Record(history.Event{Kind: history.Healed, Within: 4 * time.Millisecond})
			s.ends(s.begin(history.Append, "b"), history.Failed)
			s.append(2, 2, "c")
		}},

		{"RefusedIsThere", history.NothingInvented, func(s *script) { s.ends(s.begin(history.Append, "a"), history.Failed); s.read(1, "a") }},
		{"NobodyWroteIt", history.NothingInvented, func(s *script) { s.read(1, "a") }},
		{"NobodyWroteItYet", history.NothingInvented, func(s *script) { s.read(1, "a"); s.append(1, 1, "a") }},
		{"TwiceInOneLog", history.NothingInvented, func(s *script) { s.append(1, 1, "a"); s.read(1, "a", "a") }},
		{"UnknownIsThere", "", func(s *script) { s.ends(s.begin(history.Append, "a"), history.Unknown); s.read(1, "a") }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { wantViolation(t, test.breaks, test.script) })
	}
}

// wantViolation wants the invariant among the violations, or no violation at all.
func wantViolation(t *testing.T, breaks history.Invariant, play func(s *script)) {
	t.Helper()
	s := newScript()
	play(s)
	violations := history.Check(s.History())
	if breaks == "" {
		for _, v := range violations {
			t.Errorf("refused: %s", v)
		}
		return
	}
	for _, v := range violations {
		if v.Invariant == breaks {
			return
		}
	}
	t.Errorf("not refused as %q; the violations are %v", breaks, violations)
}
