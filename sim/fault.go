package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A FaultKind says what goes wrong.
type FaultKind string

// The kinds of faults. Beside each is what it uses besides the step.
const (
	Stop      FaultKind = "stop"      // replica, for: its process does not run; with at, from when it reaches that site; with n=1, requests that have not arrived leave it afterwards
	Crash     FaultKind = "crash"     // replica, for: it is killed, and starts again after that time; at as above; with n=1, requests that have not arrived do so later
	Cut       FaultKind = "cut"       // replica, store, for: nothing passes between them
	Slow      FaultKind = "slow"      // replica, store, for: every answer takes a part of the TTL
	Refuse    FaultKind = "refuse"    // replica, at: the next such call fails and has no effect; with for, all in that time
	Unclear   FaultKind = "unclear"   // replica, at: the next such call has its effect and fails; for as above
	Silent    FaultKind = "silent"    // replica, at: the next such call has its effect and is never answered; for as above
	Hang      FaultKind = "hang"      // replica, at: the next such call arrives after its caller gave up; for as above
	Repeat    FaultKind = "repeat"    // replica, at: the next such request arrives once more, later
	Corrupt   FaultKind = "corrupt"   // n: a bit of an object changes
	Lose      FaultKind = "lose"      // n: an object is gone
	Backwards FaultKind = "backwards" // for: the lease store is what it was so long ago; once in a history, and nobody forgets a tenant in it
)

// A Fault is one thing that goes wrong, as data: it prints as a line, and a list of them
// with a seed makes the same history again.
type Fault struct {
	Step    int // of the scheduler, from which on
	Kind    FaultKind
	Replica int
	Store   string // leases or copies
	At      string // a site, such as copies.create-manifest:e00000001/snap-000002.json, without the epoch or the name too, or gate.commit, or its beginning
	For     time.Duration
	N       uint64
}

// String writes the fault as [ParseFault] reads it.
func (f Fault) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", f.Step, f.Kind)
	if f.usesReplica() || f.Replica > 0 {
		fmt.Fprintf(&b, " replica=%d", f.Replica)
	}
	if f.Store != "" {
		b.WriteString(" store=" + f.Store)
	}
	if f.At != "" {
		b.WriteString(" at=" + f.At)
	}
	if f.For > 0 {
		b.WriteString(" for=" + f.For.String())
	}
	if f.N > 0 {
		fmt.Fprintf(&b, " n=%d", f.N)
	}
	return b.String()
}

func (f Fault) usesReplica() bool {
	return !slices.Contains([]FaultKind{Corrupt, Lose, Backwards}, f.Kind)
}

// lasts reports whether the fault is one of calls, and not of one call only.
func (f Fault) lasts() bool {
	return f.For > 0 && slices.Contains([]FaultKind{Refuse, Unclear, Silent, Hang}, f.Kind)
}

var kinds = []FaultKind{Stop, Crash, Cut, Slow, Refuse, Unclear, Silent, Hang, Repeat, Corrupt, Lose, Backwards}

// ParseFault reads what String wrote.
func ParseFault(line string) (Fault, error) {
	words := strings.Fields(line)
	if len(words) < 2 {
		return Fault{}, fmt.Errorf("a fault is a step, a kind and its details, not %q", line)
	}
	step, err := strconv.Atoi(words[0])
	f := Fault{Step: step, Kind: FaultKind(words[1])}
	if err != nil || step < 0 || !slices.Contains(kinds, f.Kind) {
		return Fault{}, fmt.Errorf("%q: no step, or no kind of fault", line)
	}
	for _, word := range words[2:] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "replica":
			f.Replica, err = strconv.Atoi(value)
		case "store":
			f.Store = value
		case "at":
			f.At = value
		case "for":
			f.For, err = time.ParseDuration(value)
		case "n":
			f.N, err = strconv.ParseUint(value, 10, 64)
		default:
			err = fmt.Errorf("%q is unknown", name)
		}
		if err != nil {
			return Fault{}, fmt.Errorf("%q: %w", line, err)
		}
	}
	return f, f.validate()
}

func (f Fault) validate() error {
	calls := []FaultKind{Refuse, Unclear, Silent, Hang, Repeat}
	switch {
	case f.Replica < 0 || f.For < 0:
		return fmt.Errorf("%q: negative", f)
	case (f.Kind == Cut || f.Kind == Slow) && f.Store != leases && f.Store != copies:
		return fmt.Errorf("%q: store must be leases or copies", f)
	case slices.Contains(calls, f.Kind) && f.At == "":
		return fmt.Errorf("%q: at is missing", f)
	}
	return nil
}

// ParseFaults reads one fault a line. Empty lines, and what follows a #, do not count.
func ParseFaults(text string) ([]Fault, error) {
	faults := []Fault{}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		f, err := ParseFault(line)
		if err != nil {
			return nil, err
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// FormatFaults writes what ParseFaults reads.
func FormatFaults(faults []Fault) string {
	var b strings.Builder
	for _, f := range faults {
		b.WriteString(f.String() + "\n")
	}
	return b.String()
}
