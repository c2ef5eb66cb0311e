// Package router opens tenants on one replica: it acquires the lease, restores
// the newest trusted copy, serves the ledger, copies it, and gives it up, by a
// handoff that loses nothing, by abandoning it, or because the lease was lost.
//
// # A tenure
//
//	          ┌──────── drain timed out, flush failed ────────┐
//	          ▼                                               │
//	Open ─▶ serving ──Handoff──▶ draining ──idle──▶ flushing ──┴─copied─▶ closed
//	          │                     │                  │
//	          ├──Forget──▶ forgetting ─────────────────┼──────▶ closed
//	          └──Abandon, lease lost ──────────────────┴──────▶ closed
//
// Opening is: acquire the lease at a new epoch; restore what the newest claimed
// epoch left, or create a new ledger if nothing ever was; claim the epoch in the
// copy store; prove once more that the lease is held; serve. From then on nothing
// that an earlier owner still uploads can become the tenant's state.
//
// serving: [Handle.Run] and [Handle.DB] work. draining: new calls of Run are
// refused with [coord.CodeDraining], those running finish and are acknowledged.
// flushing: nothing can be written any more and the final copy is made.
// forgetting: like draining, but everything is deleted instead of copied. closed:
// the handle is over for good; [Handle.Err] says why. The lease is renewed in the
// background from the grant until the handle is closed, in every state.
//
// # What is acknowledged
//
// Run proves the lease before and after the work. A call that returned nil is
// acknowledged: it survives a handoff, and a crash if a copy was committed after
// it. Work that ended behind the fence gets a [coord.OutcomeUnknownError].
//
// # Moving a tenant
//
// [Handle.Handoff] gives a tenant up to nobody in particular. [Router.OpenWait] wants
// one: it asks the owner, which honours the request by a handoff once its tenure is
// [Options.MinTenure] old, and waits. [Handle.HandoffTo] moves one to a successor that
// was told before and has fetched the newest copy by [Router.Prewarm], so that work
// pauses as shortly as may be. None of them is a claim: what counts is who acquires.
//
// # Idle tenants
//
// A replica holds many tenants and few of them are in use. One that nobody has used
// for [Options.IdleClose] has no connection any more, hence no descriptor: it holds its
// lease, and the next call opens the local file again under the same tenure. Copies and
// drills leave it at rest. After [Options.IdleHandoff] it is handed off to nobody.
//
// A local file that other hands delete or replace meanwhile does not come back empty:
// the tenure ends with [coord.CodeLedgerGone], as if abandoned. One of which SQLite says
// that it is damaged, in use or not, ends it with [coord.CodeLedgerDamaged].
//
// # Goroutines and locks
//
// A [Router] owns one goroutine per opening, one per open tenant for its renewal and one
// for everything else that it needs from time to time, a short one for the sweep after an
// opening, for a drill and for an idle handoff, one that renews the leases of all tenants
// together if the store can, so that the loop of each has nothing to do while all is well,
// a short one for each such renewal, one that hears of requests of other replicas, one for
// each such request for a tenant held here, one that hears of leases that have ended, and
// one that delivers events. database/sql has one for the long-lived handle. [Router.Close]
// ends and joins all of them, except for what waits for a copy store that does not return
// from a call. Locks are taken in the order Router, Handle; none is held across
// I/O.
package router
