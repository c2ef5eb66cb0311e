package memlease_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/coord/memlease"
)

// RO-18: who watches is told of each request once, of those that stood before too,
// and a request that was withdrawn and made again is a new one.
func TestWants(t *testing.T) {
	s := memlease.New(coord.SystemClock())
	key, err := coord.NewKey("acme", "t-00000000000000000000000000000001")
	if err != nil {
		t.Fatal(err)
	}
	want := func(asker string) func(context.Context) error {
		t.Helper()
		withdraw, err := s.Want(t.Context(), key, asker)
		if err != nil {
			t.Fatal(err)
		}
		return withdraw
	}
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan coord.Want, 10)
	withdraw := want("b")
	var watch sync.WaitGroup
	watch.Go(func() {
		if err := s.WatchWants(ctx, func(w coord.Want) { told <- w }); !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
	})
	if w := <-told; w.Asker != "b" || w.Key != key {
		t.Errorf("told %+v", w)
	}
	want("b") // nothing new
	want("a")
	if w := <-told; w.Asker != "a" {
		t.Errorf("told %+v", w)
	}
	if wants, err := s.Wants(t.Context(), key); err != nil || len(wants) != 2 || wants[0].Asker != "a" {
		t.Errorf("requests %+v, %v", wants, err)
	}
	for range 2 {
		if err := withdraw(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if wants, err := s.Wants(t.Context(), key); err != nil || len(wants) != 1 {
		t.Errorf("requests %+v, %v", wants, err)
	}
	want("b")
	if w := <-told; w.Asker != "b" {
		t.Errorf("told %+v", w)
	}
	cancel()
	watch.Wait()
	if len(told) != 0 {
		t.Errorf("told %d times too often", len(told))
	}
}
