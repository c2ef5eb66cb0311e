package history_test

import (
	"testing"

	"github.com/leaseholddb/leasehold/sim/history"
)

// SI-3: what the search for an order must refuse, and what it must not.
func TestLinearizable(t *testing.T) {
	const log, register = history.LogLinearizable, history.RegisterLinearizable
	tests := []struct {
		name   string
		breaks history.Invariant
		script func(s *script)
	}{
		{"LogLosesWithinAnEpoch", log, func(s *script) { s.append(1, 1, "a"); s.append(1, 2, "b"); s.read(1, "a") }},
		{"LogOutOfOrder", log, func(s *script) { s.append(1, 1, "a"); s.append(1, 2, "b"); s.read(1, "b", "a") }},
		{"LogHoleThatNobodyWrote", log, func(s *script) { s.append(1, 1, "a"); s.append(1, 3, "b") }},
		{"LogHoleOfAnUnknownWrite", "", func(s *script) {
			s.append(1, 1, "a")
			s.ends(s.begin(history.Append, "u"), history.Unknown)
			s.append(1, 3, "b")
		}},
		{"LogHoleOfARefusedWrite", log, func(s *script) {
			s.append(1, 1, "a")
			s.ends(s.begin(history.Append, "u"), history.Failed)
			s.append(1, 3, "b")
		}},
		{"LogLosesTheMiddle", log, func(s *script) {
			s.append(1, 1, "a")
			s.append(1, 2, "b")
			s.append(1, 3, "c")
			s.read(2, "a", "c")
		}},
		{"LogLosesTheEndInACrash", "", func(s *script) {
			s.append(1, 1, "a")
			s.append(1, 2, "b")
			s.append(1, 3, "c")
			s.read(2, "a")
			s.append(2, 2, "d")
			s.read(2, "a", "d")
		}},
		{"LogLostIsBack", log, func(s *script) {
			s.append(1, 1, "a")
			s.append(1, 2, "b")
			s.read(2, "a")
			s.read(3, "a", "b")
		}},
		{"LogLosesACopyWithoutAnyRead", log, func(s *script) {
			s.append(1, 1, "a")
			s.append(1, 2, "b")
			s.call(history.Snapshot, 1)
			s.append(2, 2, "c")
		}},
		{"LogUnknownShowsLater", "", func(s *script) {
			s.append(1, 1, "a")
			s.ends(s.begin(history.Append, "u"), history.Unknown)
			s.read(1, "a")
			s.append(1, 2, "b")
			s.read(1, "a", "b", "u")
		}},
		{"LogUnknownMovesWithinAnEpoch", log, func(s *script) {
			s.ends(s.begin(history.Append, "u"), history.Unknown)
			s.append(1, 2, "b")
			s.read(1, "u", "b")
			s.read(1, "b", "u")
		}},
		{"LogUnknownIsLostAndRetried", "", func(s *script) {
			s.append(1, 1, "a")
			s.ends(s.begin(history.Append, "u"), history.Unknown)
			s.read(1, "a", "u")
			s.append(2, 2, "c")
			s.append(2, 3, "u")
			s.read(2, "a", "c", "u")
		}},
		{"LogRetryAnswersTheSame", "", func(s *script) { s.append(1, 1, "a"); s.append(1, 2, "b"); s.append(2, 1, "a"); s.read(2, "a", "b") }},
		{"LogRetryAnswersAnother", log, func(s *script) { s.append(1, 1, "a"); s.append(1, 2, "b"); s.append(1, 3, "a") }},
		{"LogKeptAcrossForget", log, func(s *script) { s.append(1, 1, "a"); s.call(history.Forget, 1); s.append(2, 2, "b") }},
		{"LogStaleRead", log, func(s *script) { s.append(1, 1, "a"); s.read(1) }},
		{"LogStaleReadOfUntoldPosition", log, func(s *script) { s.append(1, 0, "a"); s.read(1); s.read(1, "a") }},
		{"LogOfUntoldPositions", "", func(s *script) {
			s.append(1, 0, "a")
			s.append(1, 0, "b")
			s.read(1, "a", "b")
			s.append(2, 0, "c")
			s.read(2, "a", "c")
		}},
		{"LogReadWhileWritten", "", func(s *script) {
			a := s.begin(history.Append, "a")
			s.read(1)
			s.ok(a, 1, 1)
		}},

		{"RegisterStale", register, func(s *script) { s.set(1, "x"); s.set(1, "y"); s.get(1, "x") }},
		{"RegisterEmptyAfterWrite", register, func(s *script) { s.set(1, "x"); s.get(1) }},
		{"RegisterGoesBackInACrash", "", func(s *script) { s.set(1, "x"); s.set(1, "y"); s.get(2, "x"); s.set(2, "z"); s.get(2, "z") }},
		{"RegisterGoesBackBehindItsCopy", register, func(s *script) {
			s.set(1, "x")
			s.set(1, "y")
			s.call(history.Snapshot, 1)
			s.get(2, "x")
		}},
		{"RegisterGoesBackInAHandoff", register, func(s *script) { s.set(1, "x"); s.set(1, "y"); s.call(history.Handoff, 1); s.get(2, "x") }},
		{"RegisterLostIsBack", register, func(s *script) { s.set(1, "x"); s.set(1, "y"); s.get(2, "x"); s.get(3, "y") }},
		{"RegisterUnknown", "", func(s *script) {
			s.set(1, "x")
			s.ends(s.begin(history.Set, "u"), history.Unknown)
			s.get(1, "x")
			s.get(1, "u")
		}},
		{"RegisterUnknownIsLostAndComes", register, func(s *script) {
			s.ends(s.begin(history.Set, "u"), history.Unknown)
			s.get(1, "u")
			s.set(1, "x")
			s.get(1, "u")
		}},
		{"RegisterUnknownGoesBack", register, func(s *script) {
			s.set(1, "x")
			s.ends(s.begin(history.Set, "u"), history.Unknown)
			s.get(1, "u")
			s.get(1, "x")
		}},
		{"RegisterOfTwoWriters", "", func(s *script) {
			x := s.begin(history.Set, "x")
			s.set(1, "y")
			s.ok(x, 1, 0)
			s.get(1, "y")
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { wantViolation(t, test.breaks, test.script) })
	}
}
