// Package coordtest proves that a [coord.LeaseStore] keeps its contract, and holds
// the clock that a test moves by hand. Any binding can import it:
//
//	func TestConformance(t *testing.T) {
//		clock := &coordtest.Clock{}
//		coordtest.Test(t, coordtest.Subject{Store: memlease.New(clock), Advance: clock.Advance})
//	}
//
// [Run] returns what it found instead of failing a test, so that a set of
// deliberately broken stores can show that each check is able to fail.
package coordtest
