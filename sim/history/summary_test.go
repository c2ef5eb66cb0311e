package history_test

import (
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/sim/history"
)

func TestSummarize(t *testing.T) {
	s := newScript()
	s.grant(1, "A")
	s.append(1, 1, "a")
	s.call(history.Handoff, 1)
	s.grant(2, "B") // the handoff
	s.append(2, 2, "b")
	s.append(2, 3, "c")
	s.Record(history.Event{Kind: history.Fault, Text: "crash"})
	s.ends(s.begin(history.Append, "d"), history.Failed)
	s.ends(s.begin(history.Append, "e"), history.Unknown)
	s.now += 5 * time.Second
	s.grant(3, "A") // a takeover, which lost c
	s.read(3, "a", "b")
	s.call(history.Forget, 3)
	s.grant(4, "A") // neither
	s.append(4, 1, "f")
	s.read(4, "f")
	got := history.Summarize(s.History())
	outage := got.LongestOutage.Length()
	got.LongestOutage, got.Duration = history.Outage{}, 0
	want := history.Summary{
		Events: len(s.History()), Tenants: 1, Faults: 1, Grants: 4, Takeovers: 1, Handoffs: 1, Acknowledged: 4, Refused: 1, Unknown: 1, Reads: 2,
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if outage < 5*time.Second || outage > 5*time.Second+10*time.Millisecond {
		t.Errorf("the longest outage is %v", outage)
	}
	if none := history.Summarize(nil); none != (history.Summary{}) {
		t.Errorf("of nothing: %+v", none)
	}

	s = newScript()
	s.append(1, 1, "a")
	s.append(1, 2, "b")
	s.read(2, "a")
	if got := history.Summarize(s.History()); got.Lost != 1 {
		t.Errorf("%d lost, want 1", got.Lost)
	}
}
