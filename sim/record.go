package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/leaseholddb/leasehold/sim/history"
)

// A note is an event of the step that is under way, with whose goroutine noted it.
type note struct {
	source string
	event  history.Event
}

// record notes an event. What several goroutines note in one step is put in order when the
// step is over, so that the history does not depend on how they ran.
func (w *world) record(source string, e history.Event) {
	e.At = w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.notes = append(w.mu.notes, note{source, e})
}

// takeNotes makes the notes of the step that is over a part of the history.
func (w *world) takeNotes() {
	w.mu.Lock()
	notes := w.mu.notes
	w.mu.notes = nil
	w.mu.Unlock()
	slices.SortStableFunc(notes, func(a, b note) int {
		return cmp.Or(cmp.Compare(a.event.At, b.event.At), cmp.Compare(a.source, b.source))
	})
	for _, n := range notes {
		w.events = append(w.events, n.event)
	}
}

// source is what a client's notes are put in order by.
func (c *client) source() string { return fmt.Sprintf("client %03d", c.n) }
