// Package model is the copies protocol as an explicit-state model: a page of
// rules, and a search that tries every order in which they can be applied. It is
// the readable statement of the protocol, and shows that each safeguard is
// needed: with any one of them taken out, [Check] prints the shortest way to the
// harm.
//
// # What is modelled
//
// One tenant. The lease store grants it to one tenure after another, at any time:
// that a lease runs out and that it is released look the same from here. Every
// owner may stall at any step for as long as the search likes, and then goes on as
// if nothing had happened; a crash is a stall without end. An owner's proof of its
// lease fails from the moment that another tenure was granted, which is all that
// the fence promises. Each call to the copy store takes effect at one moment,
// apart from every other call.
//
// A tenure writes two things that can be told apart: one acknowledged write, and
// one commit that was paused between its gate and its landing, so that it may land
// after the tenure was superseded. An image holds whatever the ledger holds when it
// is taken. Retention, forgets and sweeps delete one object at a time, in any order,
// which covers the order of the product.
//
// Beside the owners act, if [Config] lets them: a store that corrupts objects or
// loses them, and a lease store that is restored from an older backup, with the
// operator who heals it.
//
// # What must hold
//
// Whenever a tenure begins to serve: its ledger holds every copy that was reported
// as committed before its grant, nothing that an owner between left behind, no
// commit that landed after its owner was superseded, and nothing that was
// forgotten. A tenant never starts empty if a copy of it counts. An owner that
// still holds the lease is refused only if copies were damaged or the lease store
// forgot grants.
//
// # The reference
//
// The model began as a coarser one, in another language, that opens in one step and
// knows neither damage nor rollbacks. [Reference] turns each difference back, and
// then both visit the same number of states.
package model
