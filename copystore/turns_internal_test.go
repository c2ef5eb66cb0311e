package copystore

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
)

// CP-7: turns come in the order in which they were asked for, past those who
// stopped waiting.
func TestTurnsAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var line turns
		if err := line.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		impatient, cancel := context.WithCancel(t.Context())
		var order []int
		for i := range 5 {
			go func() {
				ctx := t.Context()
				if i == 2 {
					ctx = impatient
				}
				if line.take(ctx) == nil {
					order = append(order, i)
					line.give()
				}
			}()
			synctest.Wait() // it stands in line
		}
		cancel()
		synctest.Wait()
		line.give()
		synctest.Wait()
		if want := []int{0, 1, 3, 4}; !slices.Equal(order, want) {
			t.Errorf("the turns came as %v, want %v", order, want)
		}
		if err := line.take(t.Context()); err != nil {
			t.Errorf("afterwards the turn is taken: %v", err)
		}
	})
}
