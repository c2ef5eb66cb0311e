package model

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"
)

var full = flag.Bool("full", false, "also search the bounds that take minutes")

func searched(t *testing.T, c Config) Result {
	t.Helper()
	r := Check(c)
	t.Logf("%d states", r.States)
	if r.Violation != "" {
		t.Logf("%s\n  %s", r.Violation, strings.Join(r.Trace, "\n  "))
	}
	return r
}

// SI-3: nothing goes wrong in any order of steps, within these bounds.
func TestProtocolHolds(t *testing.T) {
	for name, c := range map[string]Config{
		"three tenures":          {Tenures: 3, Copies: 1, Forget: true, Late: true},
		"four tenures":           {Tenures: 4, Copies: 1, Forget: true},
		"two copies":             {Tenures: 3, Copies: 2, Keep: 2, Late: true},
		"a corrupted object":     {Tenures: 3, Copies: 1, Forget: true, Late: true, Corrupted: 1},
		"corrupted and two kept": {Tenures: 3, Copies: 2, Keep: 2, Corrupted: 1},
		"a lost copy":            {Tenures: 3, Copies: 1, Forget: true, Late: true, Lost: 1},
		"two damages":            {Tenures: 3, Copies: 1, Corrupted: 1, Lost: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if r := searched(t, c); r.Violation != "" {
				t.Error("the protocol does not hold")
			}
		})
	}
}

// A lease store that was restored from an older backup stops the opens, and an
// operator heals it.
func TestRollback(t *testing.T) {
	t.Parallel()
	bounds := []Config{{Tenures: 4, Copies: 1, Rollbacks: 1}, {Tenures: 3, Copies: 1, Late: true, Rollbacks: 2}}
	if *full {
		bounds = append(bounds, Config{Tenures: 4, Copies: 1, Rollbacks: 2})
	}
	for _, c := range bounds {
		r := searched(t, c)
		if r.Violation != "" {
			t.Error("the protocol does not hold")
		}
		if r.Healed == 0 {
			t.Error("no tenure served after the operator raised the epoch")
		}
	}
}

// Every step is taken somewhere: what is never tried proves nothing.
func TestEveryStepIsTaken(t *testing.T) {
	t.Parallel()
	taken := make(map[string]int)
	for _, c := range []Config{
		{Tenures: 3, Copies: 1, Forget: true, Late: true, Lost: 1},
		{Tenures: 3, Copies: 1, Rollbacks: 1, Corrupted: 1},
		{Tenures: 3, Copies: 1, Rollbacks: 1, Without: LeasesOver},
		{Tenures: 2, Copies: 1, RemovedManifests: 1},
	} {
		for name, n := range Check(c).Steps {
			taken[name] += n
		}
	}
	for _, name := range StepNames() {
		if taken[name] == 0 {
			t.Errorf("%q is never taken", name)
		}
	}
}

// Equal configurations have equal results, the way to the violation included.
func TestSameResultAgain(t *testing.T) {
	t.Parallel()
	c := Config{Tenures: 3, Copies: 1, Late: true, Without: ProofBefore}
	one, two := Check(c), Check(c)
	if one.States != two.States || one.Violation != two.Violation || !slices.Equal(one.Trace, two.Trace) || !maps.Equal(one.Steps, two.Steps) {
		t.Errorf("%+v\nthen\n%+v", one, two)
	}
}

func TestConfigNamesAllThatIsWrong(t *testing.T) {
	err := Config{Tenures: 9, Copies: -1, Rollbacks: 1, Forget: true}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Tenures", "Copies", "both Rollbacks and Forget"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
