package sim

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/sim/history"
)

// Defaults of [Config].
const (
	DefaultReplicas = 3
	DefaultTenants  = 3
	DefaultClients  = 4
	DefaultSteps    = 500
)

// A Config makes one history. Everything that is not in it follows from the seed.
type Config struct {
	Seed uint64
	// Replicas, Tenants and Clients are how many there are; zero means the defaults.
	Replicas, Tenants, Clients int
	// Steps is how many choices the scheduler makes before it ends all faults and sees
	// whether the fleet serves again. Zero means [DefaultSteps].
	Steps int
	// Faults are what goes wrong. Nil means what the seed says; an empty list, nothing.
	Faults []Fault
	// TTL is how long a lease lasts, and the measure of every other time. Zero means that
	// the seed chooses.
	TTL time.Duration
	// SnapshotEvery is the time between periodic copies; zero means that the seed chooses.
	SnapshotEvery time.Duration
	// Dir is where the local ledgers lie, best a file system in memory: SQLite makes every
	// commit durable. Empty means /dev/shm if there is one, else the directory for temporary
	// files.
	Dir string
	// Trace, if not nil, is told of every step.
	Trace io.Writer
}

// Validate names every field that is out of range, with [coord.CodeOptionsInvalid].
func (c Config) Validate() error {
	var wrong []string
	check := func(bad bool, what string) {
		if bad {
			wrong = append(wrong, what)
		}
	}
	check(c.Replicas < 0 || c.Replicas > 16, "Replicas must be at most 16")
	check(c.Tenants < 0 || c.Tenants > 64, "Tenants must be at most 64")
	check(c.Clients < 0 || c.Clients > 64, "Clients must be at most 64")
	check(c.Steps < 0, "Steps must be positive")
	check(c.TTL != 0 && (c.TTL < time.Second || coord.ValidateTTL(c.TTL) != nil), "TTL must be from 1 s to 10 min")
	check(c.SnapshotEvery < 0, "SnapshotEvery must be positive")
	for _, f := range c.Faults {
		if err := f.validate(); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	if len(wrong) > 0 {
		return &coord.Error{Code: coord.CodeOptionsInvalid, Op: "simulation", Detail: strings.Join(wrong, "; ")}
	}
	return nil
}

func (c Config) withDefaults() Config {
	fill := func(n *int, def int) {
		if *n == 0 {
			*n = def
		}
	}
	fill(&c.Replicas, DefaultReplicas)
	fill(&c.Tenants, DefaultTenants)
	fill(&c.Clients, DefaultClients)
	fill(&c.Steps, DefaultSteps)
	if c.Dir == "" {
		c.Dir = os.TempDir()
		if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
			c.Dir = "/dev/shm"
		}
	}
	return c
}

// Command is what to type to make the same history again: the faults, which [FormatFaults]
// writes, are its input.
func (c Config) Command() string {
	return fmt.Sprintf("replica sim --seed %d --replicas %d --tenants %d --clients %d --steps %d --faults - <<'EOF'\n%sEOF",
		c.Seed, c.Replicas, c.Tenants, c.Clients, c.Steps, FormatFaults(c.Faults))
}

// A Result is one history and what became of it.
type Result struct {
	Config     Config // with everything filled in that the seed decided
	History    history.History
	Violations []history.Violation
	Stats      Stats
	Hash       string // of the history; the same on every machine
}

// Stats count what happened.
type Stats struct {
	Histories     int
	Steps         int
	Faults        int
	Takeovers     int // grants after a tenure that did not flush
	Handoffs      int // tenures that ended with everything in a copy
	Moves         int // of those, to a replica that was told before
	Waits         int // openings by a replica that asked the owner and waited
	Writes        int // acknowledged
	Reads         int // acknowledged
	Lost          int // acknowledged after the last copy of a tenure that was not handed off
	Simulated     time.Duration
	LongestOutage time.Duration // in which a tenant's clients asked in vain
}

// count takes over what a history counts.
func (s *Stats) count(sum history.Summary) {
	s.Takeovers, s.Handoffs, s.Writes, s.Reads = sum.Takeovers, sum.Handoffs, sum.Acknowledged, sum.Reads
	s.Lost, s.LongestOutage = sum.Lost, sum.LongestOutage.Length()
}

// Add adds what another history counted.
func (s *Stats) Add(o Stats) {
	s.Histories += o.Histories
	s.Steps += o.Steps
	s.Faults += o.Faults
	s.Takeovers += o.Takeovers
	s.Handoffs += o.Handoffs
	s.Moves += o.Moves
	s.Waits += o.Waits
	s.Writes += o.Writes
	s.Reads += o.Reads
	s.Lost += o.Lost
	s.Simulated += o.Simulated
	s.LongestOutage = max(s.LongestOutage, o.LongestOutage)
}
