// Package coord is the contract that the rest of leasehold is built on: what a
// tenant's key is, what a lease store promises, which errors callers may branch
// on, and which clock a holder may trust. It imports no other package of this
// module, so an implementer of a lease store needs nothing else.
//
// # The protocol
//
// Each tenant has one SQLite ledger. A [LeaseStore] keeps one [Record] per
// tenant and decides, on its own clock, which replica may write the ledger:
//
//  1. A replica calls Acquire. The store grants only while no unexpired lease
//     exists, and moves the epoch forward by exactly one. The epoch is the
//     fencing token: it is assigned by the store, never by the caller, and never
//     handed out twice.
//  2. The replica reads its own clock before it sends each Acquire or Renew, and
//     from that reading computes the fence: the moment after which it may not
//     acknowledge anything. Because the reading precedes the request, the round
//     trip, the store's clock and the skew between both can only make the
//     replica stop earlier than the store would let somebody else begin.
//  3. While it is before the fence the replica acknowledges writes. A renewal
//     keeps the epoch and moves the fence forward. A renewal that fails leaves
//     the fence where it is.
//  4. Release ends the lease at once. An expired lease cannot be revived, even
//     when nobody else took it: the next grant has the next epoch.
//  5. Durable copies are written under the epoch. A successor starts from what
//     its predecessor had committed before the successor opened, and everything
//     that a superseded holder uploads later lies where no successor looks.
//
// # The awkward window
//
// Two replicas may both believe that they hold a tenant: one was paused between
// its last check and the work that the check allowed. The window is bounded by
// the length of that pause, which nobody can bound. What makes the loser
// harmless is not the clock but the epoch: what it still writes reaches a local
// file that no later owner reads and an epoch prefix that no lineage leads to,
// and the check after the work keeps it from acknowledging.
//
// # Errors
//
// Every failure that a caller may want to branch on carries a [Code]. Test with
// errors.Is(err, coord.CodeLeaseHeld) or read it with [CodeOf]; the details are
// in typed errors such as [LeaseHeldError]. Messages may change, codes do not.
// Errors of a context pass through unchanged.
package coord
