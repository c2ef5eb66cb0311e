package main

import (
	"errors"
	"runtime"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	"github.com/leaseholddb/leasehold/coord"
)

const (
	lower  = "lower"
	higher = "higher"

	// rounds of ours and the reference, taking turns.
	rounds = 9
)

// A row is one figure.
type row struct {
	Name      string  `json:"name"`
	Value     float64 `json:"value"`
	Limit     float64 `json:"limit"`
	Better    string  `json:"better"` // lower or higher
	Ours      string  `json:"ours"`
	Reference string  `json:"reference"`
	Unit      string  `json:"unit"`
}

func (r row) ok() bool {
	if r.Better == higher {
		return r.Value >= r.Limit
	}
	return r.Value <= r.Limit
}

// errForNow is of a request that a replica refuses for now, as it does where a lease
// could not be renewed in time.
var errForNow = errors.New("refused for now")

// tooBusy reports whether err is what a machine comes to on which leases run out because
// it is too slow for them. It spoils a measurement and says nothing of what is measured.
func tooBusy(err error) bool {
	for _, sign := range []error{errForNow, coord.CodeLeaseStoreUnavailable, coord.CodeLeaseLost, coord.CodeFenced,
		coord.CodeOutcomeUnknown, coord.CodeHandleClosed, coord.CodeDrainTimeout} {
		if errors.Is(err, sign) {
			return true
		}
	}
	var answer rpctypes.EtcdError // of the references, which ask etcd themselves
	return errors.As(err, &answer) && answer.Code() == codes.Unavailable
}

// A bench collects rows.
type bench struct {
	short bool // a tenth of what takes long, to see that it works
	rows  []row
}

func (b *bench) add(r row) {
	if b.short {
		r.Name += " (short run)"
	}
	b.rows = append(b.rows, r)
}

// of returns how much of n to do.
func (b *bench) of(n int) int {
	if b.short {
		return n / 10
	}
	return n
}

// A side is one of the two things compared.
type side struct {
	what string
	// run does the work once and returns how long the part that counts took.
	run func() (time.Duration, error)
}

// ratio adds the median of ours ÷ reference over alternating rounds, lower being
// better.
func (b *bench) ratio(name string, limit float64, ours, reference side) error {
	return b.ratioOf(rounds, name, limit, ours, reference)
}

// closeRatio is ratio with more rounds, for what is close to its limit.
func (b *bench) closeRatio(name string, limit float64, ours, reference side) error {
	return b.ratioOf(4*rounds, name, limit, ours, reference)
}

func (b *bench) ratioOf(rounds int, name string, limit float64, ours, reference side) error {
	ratios := make([]float64, 0, rounds)
	var times [2][]time.Duration
	for i := range rounds + 1 {
		var took [2]time.Duration
		for turn := range 2 {
			which := (turn + i) % 2 // neither side always goes first
			runtime.GC()            // nor pays for what the other left
			d, err := []side{ours, reference}[which].run()
			if err != nil {
				return err
			}
			took[which] = d
		}
		if i == 0 {
			continue // warms both up
		}
		ratios = append(ratios, float64(took[0])/float64(took[1]))
		times[0], times[1] = append(times[0], took[0]), append(times[1], took[1])
	}
	b.add(row{
		Name: name, Value: median(ratios), Limit: limit, Better: lower, Unit: "×",
		Ours:      ours.what + " " + median(times[0]).String(),
		Reference: reference.what + " " + median(times[1]).String(),
	})
	return nil
}

func median[T float64 | time.Duration](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
