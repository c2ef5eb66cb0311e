// Package fencing is the holder's side of a lease: [Lease] knows until when this
// process may acknowledge work, and [Database] is an ordinary *sql.DB that
// refuses to work for longer than that.
//
// # Fenced
//
// A holder is fenced when it cannot prove, from its own clock and from what the
// store told it, that nobody else can have been granted the lease. It is fenced
// from the moment the fence passes, the store refuses a renewal, or the holder
// releases; it may be fenced although the store would still call it the owner,
// never the other way round.
//
// The fence is
//
//	sentAt + granted TTL − margin
//
// where sentAt was read from the holder's clock before the request was sent. The
// store began to count the TTL no earlier than that, so whatever the round trip
// took, however far apart the two clocks are, the holder stops first. The margin
// pays for the one thing left: the two clocks' rates may differ, so it must
// exceed the drift that the clocks can have over one TTL.
//
// What a fenced holder does:
//
//   - It starts nothing: every gate answers with a [coord.FencedError] that says
//     whether the lease expired locally, was lost or was released.
//   - It acknowledges nothing. Work that was let through before the fence and
//     ends after it gets an error, although it may have been applied; see
//     [coord.OutcomeUnknownError].
//   - It may resume, if the fence merely passed: a later renewal that the store
//     grants proves that the epoch never moved, hence that nobody else wrote. A
//     refused renewal is final.
//
// # At rest
//
// A [Database] opens its file with the first call, and [Database.Rest] closes it again
// when nobody uses it: a holder of many tenants pays for those in use. Handles
// and statements do not notice. The file that is opened again must be the one that was
// closed; a ledger that somebody deleted does not come back empty.
//
// # What a gate cannot do
//
// A process can be paused between a check and the work that the check allowed. So
// a write is checked three times: before the work, inside SQLite's commit, and
// after the commit before the caller hears of it. The third check is what decides
// about the acknowledgement; a commit that slipped through between the second and
// the third changes a local file that no later owner reads.
package fencing
