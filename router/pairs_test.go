package router_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

// A scene is one tenant on which two things happen at once.
type scene struct {
	t *testing.T
	w *world
	n *node
	h *router.Handle

	unblock []func() // lets the first thing go on
}

// An act is something that can happen to a tenant. begin starts it and returns
// where its result will be; a first act stays in the middle until unblocked.
type act struct {
	name  string
	begin func(s *scene) <-chan error
}

func (s *scene) run(f func(ctx context.Context) error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- f(context.Background()) }()
	synctest.Wait()
	return result
}

func (s *scene) busy() <-chan error {
	b := startBusy(s.t, s.h)
	s.unblock = append(s.unblock, func() { close(b.release) })
	return b.result
}

// holdLeases stops the next op of the lease store before it begins.
func (s *scene) holdLeases(op string) {
	gate := make(chan struct{})
	s.w.leases.before(op, func() { <-gate })
	s.unblock = append(s.unblock, func() { s.w.leases.before("", nil); close(gate) })
}

func (s *scene) holdCopies() { s.unblock = append(s.unblock, s.w.copies.hold()) }

func (s *scene) handoff(ctx context.Context) error { return s.h.Handoff(ctx) }
func (s *scene) abandon(ctx context.Context) error { return s.h.Abandon(ctx) }
func (s *scene) close(ctx context.Context) error   { return s.n.Close(ctx) }
func (s *scene) forget(ctx context.Context) error  { _, err := s.h.Forget(ctx); return err }
func (s *scene) snapshot(ctx context.Context) error {
	_, err := s.h.Snapshot(ctx)
	return err
}

// handoffTo goes to a successor that is ready once the scene goes on.
func (s *scene) handoffTo(ctx context.Context) error {
	gate := make(chan struct{})
	s.unblock = append(s.unblock, func() { close(gate) })
	return s.h.HandoffTo(ctx, func(context.Context) error { <-gate; return nil })
}

// timeOut is a handoff that work outlasts.
func (s *scene) timeOut() <-chan error {
	s.busy()
	result := s.run(s.handoff)
	time.Sleep(router.DefaultDrainTimeout)
	synctest.Wait()
	return result
}

// failFlush is a handoff whose final copy fails.
func (s *scene) failFlush() <-chan error {
	s.w.copies.fail(errSwitchedOff)
	result := s.run(s.handoff)
	s.unblock = append(s.unblock, func() { s.w.copies.fail(nil) })
	return result
}

func (s *scene) write(ctx context.Context) error { return add(ctx, s.h, "second") }

// loss waits for the renewal that is refused.
func (s *scene) loss() <-chan error {
	s.w.leases.fail("renew", &coord.Error{Code: coord.CodeLeaseLost})
	time.Sleep(router.DefaultStoreTimeout + time.Second) // past a renewal and past whatever is held
	result := make(chan error, 1)
	result <- nil
	return result
}

// firsts are the acts that can be stopped in the middle.
func firsts() []act {
	return []act{
		{"run", func(s *scene) <-chan error { return s.busy() }},
		{"snapshot", func(s *scene) <-chan error { s.holdCopies(); return s.run(s.snapshot) }},
		{"handoff draining", func(s *scene) <-chan error { s.busy(); return s.run(s.handoff) }},
		{"handoff flushing", func(s *scene) <-chan error { s.holdCopies(); return s.run(s.handoff) }},
		{"handoff to", func(s *scene) <-chan error { return s.run(s.handoffTo) }},
		{"abandon", func(s *scene) <-chan error { s.holdLeases("release"); return s.run(s.abandon) }},
		{"forget draining", func(s *scene) <-chan error { s.busy(); return s.run(s.forget) }},
		{"forget marking", func(s *scene) <-chan error { s.holdLeases("forget"); return s.run(s.forget) }},
		{"close draining", func(s *scene) <-chan error { s.busy(); return s.run(s.close) }},
		{"close flushing", func(s *scene) <-chan error { s.holdCopies(); return s.run(s.close) }},
		{"drain timed out", (*scene).timeOut},
		{"flush failed", func(s *scene) <-chan error {
			result := s.failFlush()
			s.w.copies.fail(nil)
			return result
		}},
		{"at rest", (*scene).rest},
		{"idle handoff", func(s *scene) <-chan error {
			result := s.rest()
			s.holdCopies()
			time.Sleep(idleHandoff + idleClose)
			return result
		}},
		{"loss", (*scene).loss},
	}
}

// rest waits until the tenant has no connection any more.
func (s *scene) rest() <-chan error {
	time.Sleep(2 * idleClose)
	result := make(chan error, 1)
	if n := connections(s.t, s.h); n != 0 {
		result <- fmt.Errorf("an unused tenant has %d connections", n)
	}
	close(result)
	return result
}

const idleHandoff = 3 * time.Minute // longer than the other scenes take

func seconds() []act {
	on := func(f func(*scene, context.Context) error) func(*scene) <-chan error {
		return func(s *scene) <-chan error {
			return s.run(func(ctx context.Context) error { return f(s, ctx) })
		}
	}
	return []act{
		{"run", on((*scene).write)},
		{"snapshot", on((*scene).snapshot)},
		{"handoff", on((*scene).handoff)},
		{"abandon", on((*scene).abandon)},
		{"forget", on((*scene).forget)},
		{"close", on((*scene).close)},
		{"loss", (*scene).loss},
		{"handoff to", on((*scene).handoffTo)},
		{"drain timed out", (*scene).timeOut},
		{"flush failed", (*scene).failFlush},
	}
}

// outcomes says what the first (a line) and the second (a column) of every pair come
// to, by code; a/b is whichever of two ends that come together is first.
const outcomes = `
                 | run                       | snapshot                  | handoff                   | abandon                   | forget                    | close                     | loss                              | handoff to                | drain timed out                       | flush failed
run              | ok ok                     | ok ok                     | ok ok                     | OUTCOME_UNKNOWN ok        | ok ok                     | ok ok                     | OUTCOME_UNKNOWN ok                | ok ok                     | ok DRAIN_TIMEOUT                      | ok COPY_STORE_UNAVAILABLE
snapshot         | ok ok                     | ok ok                     | ok ok                     | HANDLE_CLOSED ok          | ok ok                     | ok ok                     | FENCED ok                         | ok ok                     | COPY_STORE_UNAVAILABLE DRAIN_TIMEOUT  | COPY_STORE_UNAVAILABLE COPY_STORE_UNAVAILABLE
handoff draining | ok DRAINING               | ok DRAINING               | ok DRAINING               | HANDLE_CLOSED ok          | ok DRAINING               | ok ok                     | FENCED ok                         | ok DRAINING               | DRAIN_TIMEOUT DRAINING                | COPY_STORE_UNAVAILABLE DRAINING
handoff flushing | ok DRAINING               | ok DRAINING               | ok DRAINING               | HANDLE_CLOSED ok          | ok DRAINING               | ok ok                     | FENCED ok                         | ok DRAINING               | COPY_STORE_UNAVAILABLE DRAINING       | COPY_STORE_UNAVAILABLE DRAINING
handoff to       | ok ok                     | ok ok                     | HANDLE_CLOSED ok          | HANDLE_CLOSED ok          | HANDLE_CLOSED ok          | HANDLE_CLOSED ok          | FENCED ok                         | ok DRAINING               | ok DRAIN_TIMEOUT                      | HANDLE_CLOSED ok
abandon          | ok HANDLE_CLOSED          | ok HANDLE_CLOSED          | ok HANDLE_CLOSED          | ok HANDLE_CLOSED          | ok HANDLE_CLOSED          | ok ok                     | LEASE_STORE_UNAVAILABLE ok        | ok HANDLE_CLOSED          | LEASE_STORE_UNAVAILABLE HANDLE_CLOSED | ok HANDLE_CLOSED
forget draining  | ok DRAINING               | ok DRAINING               | ok DRAINING               | ok DRAINING               | ok DRAINING               | ok ok                     | FENCED ok                         | ok DRAINING               | DRAIN_TIMEOUT DRAINING                | ok DRAINING
forget marking   | ok DRAINING               | ok DRAINING               | ok DRAINING               | ok DRAINING               | ok DRAINING               | ok ok                     | LEASE_STORE_UNAVAILABLE/FENCED ok | ok DRAINING               | LEASE_STORE_UNAVAILABLE DRAINING      | ok DRAINING
close draining   | ok DRAINING               | ok DRAINING               | ok DRAINING               | ok ok                     | ok DRAINING               | ok ok                     | FENCED ok                         | ok DRAINING               | DRAIN_TIMEOUT DRAINING                | COPY_STORE_UNAVAILABLE DRAINING
close flushing   | ok DRAINING               | ok DRAINING               | ok DRAINING               | ok ok                     | ok DRAINING               | ok ok                     | FENCED ok                         | ok DRAINING               | COPY_STORE_UNAVAILABLE DRAINING       | COPY_STORE_UNAVAILABLE DRAINING
drain timed out  | DRAIN_TIMEOUT ok          | DRAIN_TIMEOUT ok          | DRAIN_TIMEOUT ok          | DRAIN_TIMEOUT ok          | DRAIN_TIMEOUT ok          | DRAIN_TIMEOUT ok          | DRAIN_TIMEOUT ok                  | DRAIN_TIMEOUT ok          | DRAIN_TIMEOUT DRAIN_TIMEOUT           | DRAIN_TIMEOUT COPY_STORE_UNAVAILABLE
flush failed     | COPY_STORE_UNAVAILABLE ok | COPY_STORE_UNAVAILABLE ok | COPY_STORE_UNAVAILABLE ok | COPY_STORE_UNAVAILABLE ok | COPY_STORE_UNAVAILABLE ok | COPY_STORE_UNAVAILABLE ok | COPY_STORE_UNAVAILABLE ok         | COPY_STORE_UNAVAILABLE ok | COPY_STORE_UNAVAILABLE DRAIN_TIMEOUT  | COPY_STORE_UNAVAILABLE COPY_STORE_UNAVAILABLE
loss             | ok FENCED                 | ok FENCED                 | ok FENCED                 | ok FENCED                 | ok FENCED                 | ok ok                     | ok ok                             | ok FENCED                 | ok FENCED                             | ok FENCED
at rest          | ok ok                     | ok ok                     | ok ok                     | ok ok                     | ok ok                     | ok ok                     | ok ok                             | ok ok                     | ok DRAIN_TIMEOUT                      | ok COPY_STORE_UNAVAILABLE
idle handoff     | ok DRAINING               | ok DRAINING               | ok DRAINING               | ok ok                     | ok DRAINING               | ok ok                     | ok ok                             | ok DRAINING               | ok DRAINING                           | ok DRAINING
`

// outcome looks a pair up.
func outcome(t *testing.T, first, second string) [2]string {
	t.Helper()
	lines := strings.Split(strings.Trim(outcomes, "\n"), "\n")
	column := slices.Index(cells(lines[0]), second)
	for _, line := range lines[1:] {
		if row := cells(line); row[0] == first && column > 0 {
			a, b, _ := strings.Cut(row[column], " ")
			return [2]string{a, b}
		}
	}
	t.Fatalf("the table has no place for %s, then %s", first, second)
	return [2]string{}
}

func cells(line string) []string {
	row := strings.Split(line, "|")
	for i := range row {
		row[i] = strings.TrimSpace(row[i])
	}
	return row
}

// RO-7 to RO-15: every pair of things that can happen to a tenant at once.
func TestPairs(t *testing.T) {
	for _, first := range firsts() {
		for _, second := range seconds() {
			t.Run(first.name+" then "+second.name, func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) { playPair(t, w, first, second) })
			})
		}
	}
}

func playPair(t *testing.T, w *world, first, second act) {
	s := &scene{t: t, w: w, n: w.router("a", idling, func(o *router.Options) { o.IdleHandoff = idleHandoff })}
	s.h = s.n.open(key(t, 1))
	mustAdd(t, s.h, "before")
	a := first.begin(s)
	b := second.begin(s)
	for len(s.unblock) > 0 {
		s.unblock[0]()
		s.unblock = s.unblock[1:]
		synctest.Wait()
	}
	got := [2]string{codeWord(<-a), codeWord(<-b)}
	w.leases.fail("renew", nil)
	if want := outcome(t, first.name, second.name); !slices.Contains(strings.Split(want[0], "/"), got[0]) || got[1] != want[1] {
		t.Errorf("came to %v, want %v", got, want)
	}
	s.checkAftermath(!gaveUp(first.name, got[0]) && !gaveUp(second.name, got[1]))
}

// gaveUp reports whether an act may cost acknowledged writes: on purpose, by the loss of
// the lease, or in a closing that says so.
func gaveUp(act, result string) bool {
	kind, _, _ := strings.Cut(act, " ")
	return kind == "abandon" || kind == "forget" || kind == "loss" || kind == "close" && result != "ok"
}

func codeWord(err error) string {
	if err == nil {
		return "ok"
	}
	if code := coord.CodeOf(err); code != "" {
		return string(code)
	}
	return fmt.Sprintf("%T", err)
}

// checkAftermath holds for every pair: one end, at most one release, and the next
// owner has what was acknowledged, unless it was given up on purpose.
func (s *scene) checkAftermath(kept bool) {
	s.t.Helper()
	events := s.n.kinds()
	ends := slices.DeleteFunc(slices.Clone(events), func(e string) bool {
		return !strings.HasPrefix(e, "released") && e != "lost"
	})
	if len(ends) > 1 || s.w.leases.count("release") > 1 {
		s.t.Errorf("%d releases and these ends: %v", s.w.leases.count("release"), ends)
	}
	if s.h.State() != router.StateClosed && s.h.State() != router.StateServing {
		s.t.Errorf("the tenant was left %s", s.h.State())
	}
	if s.h.State() == router.StateServing {
		mustAdd(s.t, s.h, "afterwards")
		if err := s.h.Handoff(s.t.Context()); err != nil {
			s.t.Errorf("handoff afterwards: %v", err)
		}
	}
	<-s.h.Done()
	time.Sleep(ttl)
	next := s.w.router("b").open(key(s.t, 1))
	have := held(s.t, next)
	flushed := slices.ContainsFunc(s.n.kinds(), func(e string) bool { return e == "released(true)" })
	if (kept || flushed) && !slices.Contains(have, "before") {
		s.t.Errorf("an acknowledged write was lost: %v", have)
	}
}
