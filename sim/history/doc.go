// Package history records what the clients and replicas of a fleet saw, and judges
// whether that can have been a fleet which keeps its promise.
//
// A [Recorder] collects [Event] values, all with times on one clock, in the order in
// which they were seen. A client's call is two events, an invocation and a return, which
// share the number of the operation; what the lease store and the environment did is
// one event each. [Check] reads the whole and returns every [Violation], and
// [WriteReport] draws it.
//
// # What an order proves
//
// The checks need no exact knowledge of when a thing happened, only bounds. An
// operation takes effect between its invocation and its return. A grant, or the end of
// a tenure, has happened when it is recorded, and may have happened earlier. So an
// operation which was invoked after the grant of epoch 2 was recorded, and that is
// acknowledged at epoch 1, is a violation, and one which was invoked before it is not.
// A recorder that sees a thing late therefore weakens the checks and never makes them
// wrong. The order of the events decides; two that have the same time are in the order in
// which they stand.
//
// # What each client call means
//
//   - append adds Value to the tenant's log unless it is there; the answer has its
//     Position (1 is the first), if the client knows it.
//   - read returns the whole log as Values.
//   - set writes Value, which no other set writes, to the tenant's register;
//     get returns the register's value as the only one of Values, or none if it was
//     never written.
//   - snapshot commits a copy: what was acknowledged at the same epoch before it was
//     invoked must not be lost once it was recorded as done.
//   - handoff ends the tenure without losing anything that was acknowledged in it. It may be
//     acknowledged when the lease has run out, as long as no other epoch was granted.
//   - forget removes the tenant's past: every epoch up to the one that is returned.
//
// A retry is an operation of its own with the same Value. An operation whose outcome is
// [Unknown], or that never returned, may have taken effect at any time after its
// invocation, or never.
//
// # What may be lost
//
// An epoch that ends in any other way than by a handoff may lose what was acknowledged in
// it after the last committed copy: each successor starts from some prefix of the log that
// holds at least what the copies hold. The checks allow exactly that, and [Summarize] counts it.
package history
