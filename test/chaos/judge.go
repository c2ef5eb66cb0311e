//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/sim/history"
)

// What a minute of faults must bring at least; a run that brings less shows too little. It is a
// quarter of what it brings on two slow cores.
const (
	takeoversEachMinute = 5
	handoffsEachMinute  = 20
)

// readBack reads a whole log as a client does, page by page, and records it as one
// read. A log whose pages are of two epochs is read again.
func (c *client) readBack(ctx context.Context, key coord.Key) {
	for attempt := 0; attempt < 3*maxAttempts && ctx.Err() == nil; attempt++ {
		began := c.record.Invoke(history.Event{Tenant: key.String(), Client: c.number, Call: history.Read})
		e := c.pages(ctx, key)
		c.record.Return(began, e)
		if e.Outcome == history.OK {
			return
		}
		sleep(ctx, 200*time.Millisecond)
	}
}

func (c *client) pages(ctx context.Context, key coord.Key) history.Event {
	through := c.nodes[c.random.IntN(len(c.nodes))]
	var all history.Event
	after := int64(0)
	for {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		a, err := c.ask(asking, through, http.MethodGet, tenantPath(key)+"/events?limit=500&after="+strconv.FormatInt(after, 10), nil)
		cancel()
		e := outcome(a, err)
		var page struct {
			Events []struct {
				IdemKey string `json:"idem_key"`
			}
			NextAfter int64 `json:"next_after"`
		}
		if e.Outcome == history.OK && json.Unmarshal(a.body, &page) != nil {
			return history.Event{Outcome: history.Unknown, Code: "BODY"}
		}
		if e.Outcome != history.OK {
			return e
		}
		if all.Epoch != 0 && all.Epoch != e.Epoch {
			return history.Event{Outcome: history.Failed, Code: "MOVED"}
		}
		e.Values, after = all.Values, page.NextAfter
		for _, one := range page.Events {
			e.Values = append(e.Values, one.IdemKey)
		}
		all = e
		if len(page.Events) == 0 {
			return all
		}
	}
}

// judge checks the history and writes what the run leaves.
func (r *run) judge() error {
	h := r.record.History()
	if err := r.file("history.jsonl", h.Write); err != nil {
		return err
	}
	fmt.Printf("  checking %d events\n", len(h))
	violations := history.Check(h)
	v := verdict{
		Command: r.setup.Command, Store: r.setup.Store, Seed: r.setup.Seed, Summary: history.Summarize(h), CleanExits: r.clean,
		Faults: make(map[string]int), Unasked: make(map[string]int), ReplicaEvents: r.observer.told(), Codes: make(map[string]int),
	}
	for _, one := range violations {
		v.Violations = append(v.Violations, one.String())
	}
	for _, f := range r.faults {
		v.Faults[string(f.Kind)]++
	}
	for _, err := range r.nemesis.failed {
		v.NotDone = append(v.NotDone, err.Error())
	}
	for _, p := range r.processes() {
		if n, err := p.unasked(); n > 0 {
			v.Unasked[p.name+": "+fmt.Sprint(err)] = n
		}
	}
	for _, e := range h {
		if e.Code != "" {
			v.Codes[e.Code]++
		}
	}
	v.EtcdSilent, v.EtcdLongest = r.observer.silence()
	v.Complaints = r.complaints(v)
	v.Good = len(violations) == 0 && len(v.Complaints) == 0
	err := r.leave(v, h, violations)
	v.print(os.Stdout)
	fmt.Printf("  %s has history.jsonl, verdict.json, report.html and the logs\n", r.setup.Out)
	if !v.Good {
		err = errors.Join(err, errViolations)
	}
	return err
}

// complaints are what makes a run bad although no promise was broken.
func (r *run) complaints(v verdict) []string {
	var all []string
	minutes := int(r.setup.Duration / time.Minute)
	if v.Summary.Takeovers < takeoversEachMinute*minutes || v.Summary.Handoffs < handoffsEachMinute*minutes {
		all = append(all, fmt.Sprintf("the run shows too little: at least %d takeovers and %d handoffs are wanted", takeoversEachMinute*minutes, handoffsEachMinute*minutes))
	}
	if n := v.Codes["INTERNAL"]; n > 0 {
		all = append(all, fmt.Sprintf("%d failures had no code of their own: see \"request failed\" in the replicas' logs", n))
	}
	if n := v.ReplicaEvents[skippedCopies]; n > 0 {
		all = append(all, fmt.Sprintf("%d copies were not trusted, and none was damaged", n))
	}
	return all
}

func (r *run) leave(v verdict, h history.History, violations []history.Violation) error {
	return errors.Join(
		r.file("verdict.json", func(w io.Writer) error {
			encoder := json.NewEncoder(w)
			encoder.SetIndent("", "  ")
			return encoder.Encode(v)
		}),
		r.file("report.html", func(w io.Writer) error {
			title := fmt.Sprintf("Chaos on %s, seed %d", v.Store, v.Seed)
			return history.WriteReport(w, history.Report{Title: title, Command: v.Command, History: h, Violations: violations})
		}),
	)
}

func (r *run) file(name string, write func(io.Writer) error) error {
	f, err := os.Create(filepath.Join(r.setup.Out, name))
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func (v verdict) print(w io.Writer) {
	s := v.Summary
	word := "no violation"
	if len(v.Violations) > 0 {
		word = fmt.Sprintf("%d VIOLATIONS", len(v.Violations))
	}
	faults := 0
	for _, n := range v.Faults {
		faults += n
	}
	fmt.Fprintf(w, "%s, seed %d: %s\n", v.Store, v.Seed, word)
	fmt.Fprintf(w, "  %d faults, %d grants, %d takeovers, %d handoffs, longest outage of a tenant %v\n",
		faults, s.Grants, s.Takeovers, s.Handoffs, s.LongestOutage.Length().Round(time.Millisecond))
	fmt.Fprintf(w, "  %d writes acknowledged, %d of them lost in crashes as declared; %d calls refused, %d of unknown outcome\n", s.Acknowledged, s.Lost, s.Refused, s.Unknown)
	fmt.Fprintf(w, "  etcd as a whole did not answer for %v, and for %v at a time\n", v.EtcdSilent.Round(time.Second), v.EtcdLongest.Round(time.Second))
	fmt.Fprintf(w, "  at the end %d of 3 replicas handed off every tenant\n", v.CleanExits)
	for _, text := range v.Complaints {
		fmt.Fprintf(w, "  BAD: %s\n", text)
	}
	for _, text := range v.NotDone {
		fmt.Fprintf(w, "  note: %s\n", text)
	}
	for name, n := range v.Unasked {
		fmt.Fprintf(w, "  note: %d exits that nobody asked for, %s\n", n, name)
	}
	for i, text := range v.Violations {
		if i == 10 {
			fmt.Fprintf(w, "  and %d more\n", len(v.Violations)-i)
			break
		}
		fmt.Fprintln(w, "  "+text)
	}
}

// checkFile judges a history that an earlier run left.
func checkFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	h, err := history.Parse(f)
	if err != nil {
		return err
	}
	violations := history.Check(h)
	for _, v := range violations {
		fmt.Println(v)
	}
	fmt.Printf("%d events, %d violations\n", len(h), len(violations))
	if len(violations) > 0 {
		return errViolations
	}
	return nil
}
