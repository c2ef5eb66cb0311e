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

func (s *scene) holdCopies() { s.unblock = append(s.unblock, s.w.copies.hold()) }

func (s *scene) handoff(ctx context.Context) error { return s.h.Handoff(ctx) }
func (s *scene) abandon(ctx context.Context) error { return s.h.Abandon(ctx) }
func (s *scene) close(ctx context.Context) error   { return s.n.Close(ctx) }
func (s *scene) forget(ctx context.Context) error  { _, err := s.h.Forget(ctx); return err }
func (s *scene) snapshot(ctx context.Context) error {
	_, err := s.h.Snapshot(ctx)
	return err
}
func (s *scene) write(ctx context.Context) error { return add(ctx, s.h, "second") }

// lose waits for the renewal that is refused.
func (s *scene) lose(context.Context) error {
	s.w.leases.fail("renew", &coord.Error{Code: coord.CodeLeaseLost})
	time.Sleep(ttl / 2)
	return nil
}

// firsts are the acts that can be stopped in the middle.
func firsts() []act {
	return []act{
		{"run", func(s *scene) <-chan error { return s.busy() }},
		{"snapshot", func(s *scene) <-chan error { s.holdCopies(); return s.run(s.snapshot) }},
		{"handoff draining", func(s *scene) <-chan error { s.busy(); return s.run(s.handoff) }},
		{"handoff flushing", func(s *scene) <-chan error { s.holdCopies(); return s.run(s.handoff) }},
		{"forget draining", func(s *scene) <-chan error { s.busy(); return s.run(s.forget) }},
		{"close draining", func(s *scene) <-chan error { s.busy(); return s.run(s.close) }},
		{"close flushing", func(s *scene) <-chan error { s.holdCopies(); return s.run(s.close) }},
		{"drain timed out", func(s *scene) <-chan error {
			s.busy()
			result := s.run(s.handoff)
			time.Sleep(router.DefaultDrainTimeout)
			synctest.Wait()
			return result
		}},
		{"flush failed", func(s *scene) <-chan error {
			s.w.copies.fail(errSwitchedOff)
			result := s.run(s.handoff)
			s.w.copies.fail(nil)
			return result
		}},
		{"at rest", func(s *scene) <-chan error {
			return s.run(func(context.Context) error { return s.rest() })
		}},
		{"idle handoff", func(s *scene) <-chan error {
			result := s.run(func(context.Context) error { return s.rest() })
			s.holdCopies()
			time.Sleep(idleHandoff + idleClose)
			return result
		}},
	}
}

// rest waits until the tenant has no connection any more.
func (s *scene) rest() error {
	time.Sleep(2 * idleClose)
	if n := connections(s.t, s.h); n != 0 {
		return fmt.Errorf("an unused tenant has %d connections", n)
	}
	return nil
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
		{"loss", func(s *scene) <-chan error {
			result := make(chan error, 1)
			result <- s.lose(s.t.Context())
			return result
		}},
	}
}

// outcomes says what the first (a line) and the second (a column) of every pair come
// to, by code.
const outcomes = `
                 | run                       | snapshot                  | handoff                   | abandon                   | forget                    | close                     | loss
run              | ok ok                     | ok ok                     | ok ok                     | OUTCOME_UNKNOWN ok        | ok ok                     | ok ok                     | OUTCOME_UNKNOWN ok
snapshot         | ok ok                     | ok ok                     | ok ok                     | HANDLE_CLOSED ok          | ok ok                     | ok ok                     | FENCED ok
handoff draining | ok DRAINING               | ok DRAINING               | ok DRAINING               | HANDLE_CLOSED ok          | ok DRAINING               | ok ok                     | FENCED ok
handoff flushing | ok DRAINING               | ok DRAINING               | ok DRAINING               | HANDLE_CLOSED ok          | ok DRAINING               | ok ok                     | FENCED ok
forget draining  | ok DRAINING               | ok DRAINING               | ok DRAINING               | ok DRAINING               | ok DRAINING               | ok ok                     | FENCED ok
close draining   | ok DRAINING               | ok DRAINING               | ok DRAINING               | ok ok                     | ok DRAINING               | ok ok                     | FENCED ok
close flushing   | ok DRAINING               | ok DRAINING               | ok DRAINING               | ok ok                     | ok DRAINING               | ok ok                     | FENCED ok
drain timed out  | DRAIN_TIMEOUT ok          | DRAIN_TIMEOUT ok          | DRAIN_TIMEOUT ok          | DRAIN_TIMEOUT ok          | DRAIN_TIMEOUT ok          | DRAIN_TIMEOUT ok          | DRAIN_TIMEOUT ok
flush failed     | COPY_STORE_UNAVAILABLE ok | COPY_STORE_UNAVAILABLE ok | COPY_STORE_UNAVAILABLE ok | COPY_STORE_UNAVAILABLE ok | COPY_STORE_UNAVAILABLE ok | COPY_STORE_UNAVAILABLE ok | COPY_STORE_UNAVAILABLE ok
at rest          | ok ok                     | ok ok                     | ok ok                     | ok ok                     | ok ok                     | ok ok                     | ok ok
idle handoff     | ok DRAINING               | ok DRAINING               | ok DRAINING               | ok ok                     | ok DRAINING               | ok ok                     | ok ok
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
	if want := outcome(t, first.name, second.name); got != want {
		t.Errorf("came to %v, want %v", got, want)
	}
	givenUp := second.name == "abandon" || second.name == "loss" || second.name == "forget" || strings.HasPrefix(first.name, "forget")
	s.checkAftermath(!givenUp)
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
