package model

import "testing"

// The reference visits so many states, as it counts them itself.
func TestAgreesWithReference(t *testing.T) {
	bounds := []struct{ tenures, copies, states int }{{2, 1, 16063}, {2, 2, 880368}}
	if *full {
		bounds = append(bounds, struct{ tenures, copies, states int }{3, 1, 7841502})
	}
	for _, b := range bounds {
		r := searched(t, Config{Tenures: b.tenures, Copies: b.copies, Forget: true, Late: true, Variant: Reference})
		if r.Violation != "" || r.States != b.states {
			t.Errorf("%d states and %q, where the reference has %d and no violation", r.States, r.Violation, b.states)
		}
	}
}

// It refutes the same six protocols.
func TestReferenceRefutes(t *testing.T) {
	for _, without := range []Safeguards{Lineage, ProofOfClaim, ProofBefore, ProofAfter, KeepClaim, ForgetOnlyDead} {
		t.Run(without.String(), func(t *testing.T) {
			t.Parallel()
			r := searched(t, Config{Tenures: 3, Copies: 1, Forget: true, Late: true, Variant: Reference, Without: without})
			if r.Violation == "" {
				t.Error("nothing goes wrong")
			}
		})
	}
}

// Where the product differs, the reference's way goes wrong under damage that the
// product withstands.
func TestWhereTheProductDiffers(t *testing.T) {
	for name, c := range map[string]Config{
		"only origins claim":     {Tenures: 2, Copies: 1, RemovedOrigins: 1, Variant: OnlyOriginsClaim},
		"lost copy starts empty": {Tenures: 3, Copies: 1, Lost: 1, Variant: LostCopyStartsEmpty},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if r := searched(t, c); r.Violation == "" {
				t.Error("nothing goes wrong")
			}
			c.Variant = 0
			if r := searched(t, c); r.Violation != "" {
				t.Error("the product does not withstand it")
			}
		})
	}
}

// These differ in what they spare or in what is one step, and hold all the same.
func TestOtherDifferencesHold(t *testing.T) {
	for name, v := range map[string]Variant{"open at once": OpenAtOnce, "retain by age": RetainByAge, "no sweep": NoSweep} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if r := searched(t, Config{Tenures: 3, Copies: 1, Forget: true, Variant: v}); r.Violation != "" {
				t.Error("it does not hold")
			}
		})
	}
}
