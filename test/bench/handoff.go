package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	handoffClients = 4
	handoffSamples = 200
	handoffCount   = 1000

	// perTenant keeps the ledgers of the load near the size that the row names.
	perTenant = 20

	handoffSmall = 1 << 20
	handoffLarge = 200 << 20
)

var note = json.RawMessage(`{"text":"hello"}`)

func benchHandoff(ctx context.Context, b *bench) (err error) {
	bed, err := newHandoffBed(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.close()) }()
	for _, step := range []func(*bench) error{bed.pauses, bed.failures, bed.large} {
		if err := step(b); err != nil {
			return err
		}
	}
	return nil
}

func (b *handoffBed) appends(path string) func(*handoffReplica, string) error {
	return func(r *handoffReplica, id string) error {
		return b.call(r, "POST", path+"/events", benchEvent(id, note), nil)
	}
}

func (b *handoffBed) queries(path string) func(*handoffReplica, string) error {
	return func(r *handoffReplica, _ string) error {
		return b.call(r, "POST", path+"/query", map[string]string{"sql": "SELECT max(seq) FROM events"}, nil)
	}
}

// pauses measures what clients see of a planned move.
func (b *handoffBed) pauses(out *bench) error {
	gaps, err := b.gaps(out.of(handoffSamples), handoffSmall, b.appends)
	if err != nil {
		return err
	}
	reference := fmt.Sprintf("the longest gap between two answers to %d clients, over %d moves", handoffClients, len(gaps))
	out.add(row{Name: "handoff under load, 1 MB: pause of acknowledged writes, p50", Value: ms(gaps[len(gaps)/2]), Limit: 40, Better: lower, Unit: "ms", Ours: "directory store, etcd, all synced", Reference: reference})
	out.add(row{Name: "handoff under load, 1 MB: pause of acknowledged writes, p99", Value: ms(gaps[len(gaps)*99/100]), Limit: 150, Better: lower, Unit: "ms", Ours: "directory store, etcd, all synced", Reference: reference})
	return nil
}

// large measures the pause of a large ledger that changes all the time, of which a whole
// image is moved, and of one that does not.
func (b *handoffBed) large(out *bench) error {
	changing, err := b.gaps(4, out.of(handoffLarge), b.appends)
	if err != nil {
		return err
	}
	out.add(row{Name: "handoff under load, 200 MB: pause of acknowledged writes, median", Value: ms(median(changing)), Limit: 60_000, Better: lower, Unit: "ms", Ours: "with the image and its verification", Reference: "reported, no limit in earnest"})
	still, err := b.gaps(6, out.of(handoffLarge), b.queries)
	if err != nil {
		return err
	}
	out.add(row{Name: "handoff, 200 MB, unchanged since the copy before: pause, median", Value: ms(median(still)), Limit: 60, Better: lower, Unit: "ms", Ours: "no image in the pause", Reference: fmt.Sprintf("queries by %d clients", handoffClients)})
	return nil
}

// failures counts what a client sees that retries once.
func (b *handoffBed) failures(out *bench) error {
	failed, answered := 0, 0
	var why error
	for range max(1, out.of(handoffCount)/(2*perTenant)) {
		answers, n, err := b.moves(2*perTenant, handoffSmall/16, b.appends, func(time.Time, time.Time) {})
		if err != nil && n == 0 {
			return err
		}
		failed, answered = failed+n, answered+len(answers)
		if err != nil {
			why = err
		}
	}
	ours := fmt.Sprintf("%d appends acknowledged", answered)
	if why != nil {
		ours += ", " + why.Error()
	}
	out.add(row{Name: "appends that fail twice during 1,000 handoffs", Value: float64(failed), Limit: 0, Better: lower, Unit: "appends", Ours: ours, Reference: "one retry, at the other replica"})
	return nil
}

// gaps returns the pauses of n moves, sorted.
func (b *handoffBed) gaps(n, size int, work func(path string) func(*handoffReplica, string) error) ([]time.Duration, error) {
	var gaps []time.Duration
	for len(gaps) < n {
		var moves [][2]time.Time
		answers, failed, err := b.moves(min(perTenant, n), size, work, func(from, to time.Time) { moves = append(moves, [2]time.Time{from, to}) })
		if err != nil {
			return nil, fmt.Errorf("%d calls failed: %w", failed, err)
		}
		for _, m := range moves {
			gaps = append(gaps, longestGap(answers, m[0], m[1]))
		}
	}
	slices.Sort(gaps)
	return gaps, nil
}

// moves makes a tenant, works on it, and moves it to and fro n times. It returns when
// the work was answered, sorted, and how much of it failed and why.
func (b *handoffBed) moves(n, size int, work func(path string) func(*handoffReplica, string) error, moved func(from, to time.Time)) ([]time.Time, int, error) {
	path, err := b.tenant(size)
	if err != nil {
		return nil, 0, err
	}
	clients := b.load(handoffClients, work(path))
	var problem error
	for i := range n {
		from := time.Now()
		if problem = b.move(path, i%2); problem != nil {
			break
		}
		to := time.Now()
		moved(from, to)
		time.Sleep(to.Sub(from) / 4) // let the clients catch up, so that each move has its own pause
	}
	answers, failed, err := clients.stop()
	slices.SortFunc(answers, time.Time.Compare)
	return answers, failed, errors.Join(problem, err)
}

// longestGap is the longest time without an answer that began or ended in [from, to].
func longestGap(answers []time.Time, from, to time.Time) time.Duration {
	var longest time.Duration
	for i := 1; i < len(answers); i++ {
		if answers[i].After(from) && answers[i-1].Before(to) {
			longest = max(longest, answers[i].Sub(answers[i-1]))
		}
	}
	return longest
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
