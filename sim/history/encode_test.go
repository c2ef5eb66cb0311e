package history_test

import (
	"bytes"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/sim/history"
)

func TestWriteAndParse(t *testing.T) {
	w := newWorld(7)
	w.play(100)
	w.Record(history.Event{Kind: history.Fault, Replica: "A", Text: "a \"fault\"\nof two lines <b>"})
	w.Record(history.Event{Kind: history.Healed, Within: time.Second})
	want := w.History()
	var text bytes.Buffer
	if err := want.Write(&text); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(text.String(), "\n"); lines != len(want) {
		t.Errorf("%d lines for %d events", lines, len(want))
	}
	got, err := history.Parse(&text)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read back: %v, %d events of %d", err, len(got), len(want))
	}
}

func TestParseRefuses(t *testing.T) {
	const grant = `{"at":1,"kind":"grant","tenant":"acme/t","epoch":1}`
	tests := []struct{ name, text, want string }{
		{"NotJSON", "grant", "line 1"},
		{"UnknownField", grant + "\n" + `{"at":1,"kind":"grant","tenant":"acme/t","epoch":1,"colour":"red"}`, "line 2"},
		{"TwoOnALine", grant + grant, "line 1 goes on"},
		{"UnknownKind", `{"at":1,"kind":"rain"}`, `kind "rain" is unknown`},
		{"NoEpoch", `{"at":1,"kind":"grant","tenant":"acme/t"}`, "epoch is 0"},
		{"NegativeTime", `{"at":-1,"kind":"fault","text":"x"}`, "at is negative"},
		{"TimeGoesBack", `{"at":2,"kind":"fault","text":"x"}` + "\n" + grant, "event 2"},
		{"NeverInvoked", `{"at":1,"kind":"return","tenant":"acme/t","op":1,"call":"read","outcome":"ok","epoch":1}`, "was not invoked"},
		{"LongLine", `{"at":1,"kind":"fault","text":"` + strings.Repeat("x", 17<<20) + `"}`, "line 1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := history.Parse(strings.NewReader(test.text))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

// What was parsed is written as it was, and can be checked and drawn, whatever it is.
func FuzzParse(f *testing.F) {
	w := newWorld(3)
	w.play(20)
	var text bytes.Buffer
	if err := w.History().Write(&text); err != nil {
		f.Fatal(err)
	}
	f.Add(text.Bytes())
	f.Add([]byte(`{"at":1,"kind":"healed","within":1}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := history.Parse(bytes.NewReader(data))
		if err != nil {
			return
		}
		var once, twice bytes.Buffer
		if err := h.Write(&once); err != nil {
			t.Fatal(err)
		}
		again, err := history.Parse(bytes.NewReader(once.Bytes()))
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if err := again.Write(&twice); err != nil || !bytes.Equal(once.Bytes(), twice.Bytes()) {
			t.Fatalf("written differently the second time: %v", err)
		}
		for _, e := range h {
			_ = e.String()
		}
	})
}

// A recorder keeps one order for all who use it at once.
func TestRecorder(t *testing.T) {
	begin := time.Now()
	r := history.NewRecorder(func() time.Duration { return time.Since(begin) })
	var clients sync.WaitGroup
	const each = 200
	for c := range 8 {
		clients.Go(func() {
			for range each {
				one := r.Invoke(history.Event{Tenant: tenant, Client: c, Call: history.Read})
				r.Return(one, history.Event{Outcome: history.OK, Epoch: 1})
			}
		})
	}
	clients.Wait()
	h := r.History()
	if err := h.Validate(); err != nil || len(h) != 8*each*2 {
		t.Errorf("%d events, %v", len(h), err)
	}
}
