package history_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/sim/history"
)

func report(t *testing.T, r history.Report) string {
	t.Helper()
	var page bytes.Buffer
	if err := history.WriteReport(&page, r); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

// The page shows what the run was, in well-formed SVG, and fetches nothing.
func TestReport(t *testing.T) {
	s := newScript()
	s.grant(1, "a-1111")
	s.append(1, 1, "x")
	s.Record(history.Event{Kind: history.Fault, Replica: "a", Text: "SIGKILL"})
	s.end(1, false)
	late := s.begin(history.Append, "y")
	s.now += 2 * time.Second
	s.Record(history.Event{Kind: history.Heal, Replica: "a", Text: "SIGKILL"})
	s.grant(2, "b-2222")
	s.ok(late, 2, 2)
	s.read(2, "x", "y")
	h := s.History()
	page := report(t, history.Report{Title: "a run", Command: "make it", History: h})
	for _, want := range []string{"No violation", "make it", "epoch 2, b-2222", "SIGKILL a, from", "nobody answered for 2", `class="c0"`, `class="c1"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	if found := regexp.MustCompile(`(?i)(src|href|url\(|@import|<script|https?:)`).FindString(page); found != "" {
		t.Errorf("the page refers to something: %q", found)
	}
	from, to := strings.Index(page, "<svg"), strings.Index(page, "</svg>")+len("</svg>")
	if from < 0 || to < from {
		t.Fatal("no drawing")
	}
	for svg := xml.NewDecoder(strings.NewReader(page[from:to])); ; {
		_, err := svg.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the drawing is not well formed: %v", err)
		}
	}

	broken := append(h, history.Event{At: h[len(h)-1].At, Kind: history.Grant, Tenant: tenant, Epoch: 9})
	if page := report(t, history.Report{History: broken, Violations: history.Check(broken)}); !strings.Contains(page, "1 violations") ||
		!strings.Contains(page, "epoch 9 was granted after epoch 2") {
		t.Error("the page does not show the violation")
	}
}

// Nothing that a history holds becomes markup.
func TestReportEscapes(t *testing.T) {
	const evil = `"><script>alert(1)</script>`
	s := newScript()
	s.Record(history.Event{Kind: history.Fault, Replica: evil, Text: evil})
	s.Record(history.Event{Kind: history.Grant, Tenant: "acme/" + evil, Replica: evil, Epoch: 1})
	h := s.History()
	page := report(t, history.Report{Title: evil, Command: evil, History: h, Violations: []history.Violation{
		{Invariant: evil, Tenant: "acme/" + evil, Text: evil, Evidence: h},
	}})
	if strings.Contains(page, "<script") || !strings.Contains(page, "&lt;script&gt;") {
		t.Error("the page is open to injection")
	}
}

// A page of a hundred tenants and ten minutes can be opened: some megabytes, and made in a
// moment. An empty history has a page too.
func TestReportSizes(t *testing.T) {
	report(t, history.Report{})
	now := time.Duration(0)
	r := history.NewRecorder(func() time.Duration { return now })
	for second := range 600 {
		now = time.Duration(second) * time.Second
		for n := range 100 {
			name := fmt.Sprintf("acme/t-%032x", n)
			if (second+n)%30 == 0 {
				r.Record(history.Event{Kind: history.Grant, Tenant: name, Replica: "r-1", Epoch: coord.Epoch((second+n)/30 + 1)})
			}
			one := r.Invoke(history.Event{Tenant: name, Call: history.Append, Value: fmt.Sprint(second)})
			r.Return(one, history.Event{Outcome: history.OK, Epoch: 1})
		}
	}
	page := report(t, history.Report{Title: "large", History: r.History()})
	if rows := strings.Count(page, `class="name"`); rows != 100 {
		t.Errorf("%d rows", rows)
	}
	if len(page) > 4<<20 {
		t.Errorf("the page has %d bytes", len(page))
	}
}
