// Package httpapi serves a replica's router over HTTP.
//
// # A request for a tenant
//
// Every request takes the same steps, and each of them ends before the next
// begins, so that whoever fails early has touched nothing:
//
//  1. The ids in the path are checked as they came, before anything is
//     normalized, redirected or looked up.
//  2. The body is read whole, bounded in size and time. A slow client therefore
//     holds no tenant, no transaction and no drain.
//  3. The body is decoded strictly.
//  4. The tenant is found: an open handle here, or the lease store's record, which
//     says that another replica holds it. Only if nobody does is it opened here.
//     So a forwarded request costs the lease store one read and no write, and the
//     next ones nothing: an owner that has just answered is asked again.
//  5. The work is done inside the handle's Run. The reply is written afterwards, so
//     a client that reads slowly holds nothing either.
//
// # Endpoints that give up or copy
//
// Snapshot, handoff and abandon work on a tenant that somebody holds. If nobody
// does, they open nothing: a tenant that does not exist is 404
// [coord.CodeTenantUnknown], any other 409 [CodeTenantNotOpen], since its newest
// copy already is all there is. DELETE works wherever the tenant is, and in
// whatever state. GET of a tenant is what this replica sees and is never
// forwarded.
//
// A page of events ends at its limit or when it is large; next_after leads on, and
// an empty page is the end. The result of a query is cut after 10,000 rows or
// 8 MiB of values, and says so in truncated. exec takes single statements, none of
// which may begin or end a transaction.
//
// # Forwarding
//
// A request for a tenant that another replica holds goes to the address in the
// lease store's record, and to no other, at most once: [HeaderForwarded] marks
// it, and [HeaderEpoch] says which epoch it is meant for: a replica that has an older one
// refuses it. A marked request that finds yet another owner is answered 503 with
// Retry-After, since the tenant has just moved. It never opens a tenant either, so that
// one that was handed off stays off. The sender, told that nothing was done, looks for the
// tenant again and follows it to a newer epoch, or opens it itself if it has come free.
// A forged mark only makes its sender do the forwarding itself, and a forged epoch refuses
// it. A client that
// sends [HeaderForward] with [ForwardNever] is told the owner with 421 instead.
//
// The forwarded request has less time than this one; it learns how much from
// [HeaderTimeout]. An owner that cannot be reached is 503
// [CodeOwnerUnreachable]; a reply that was lost after the request may have been
// received is 503 [coord.CodeOutcomeUnknown], except for requests that change nothing.
// An owner that takes longer than a second is asked for its /livez: one that is stopped
// leaves that unanswered too, so that nobody waits for it longer than about three
// seconds. From then on it is sent no requests, which are refused at once with
// CodeOwnerUnreachable, until it answers or somebody else has the lease.
//
// # Event streams
//
// GET /v1/events is what happens to tenants on this replica, as server-sent events: at
// most 64 streams at once, with a comment now and then while nothing happens. A stream
// whose client is more than 1,024 events behind, or takes none for long, is ended. Who
// comes back with the id of the last event that it saw, in Last-Event-ID, first gets
// what is kept of the events since: the latest 1,024 at least, renewals excepted. If that is
// not all of them, or the id is another process's, an event "missed" comes before them.
//
// # A tenant on its way
//
// A tenant may be handed off, abandoned or lost between the moment it was found
// and the work. Such work was refused, not done, so the request is parked, and goes on from
// step 4 when the tenant serves again or nothing of the old tenure is left. It is parked
// no longer than [Options.ParkTimeout], and never so long that the client's own time runs
// out.
//
// Snapshot, handoff and abandon of a tenant that is being opened wait for it; of one that
// nobody holds while a replica asks for it they wait up to a second for that replica to have
// it, and go there. Only then is the answer [CodeTenantNotOpen].
//
// A handoff with {"to": …} goes to a replica of the registry. The owner sends it POST
// receive, an endpoint for replicas: its answer comes in two lines, the first when the
// newest copy has been fetched, the second when the tenant serves there.
//
// # Values of SQL
//
// In the arguments of statements and the rows of results, NULL is null, INTEGER
// and REAL are numbers, TEXT is a string, and BLOB is {"base64": "…"}. As an
// argument, true and false mean 1 and 0. A REAL that JSON has no number for is
// {"real": "Infinity"} or {"real": "-Infinity"}; TEXT that is not UTF-8 is an object like a
// BLOB. Values of columns that are declared BOOLEAN are true and false; those of
// columns declared DATE, DATETIME or TIMESTAMP are strings in RFC 3339.
//
// # Errors
//
// Every error is application/problem+json with type, title, status, detail and
// code, made in one place, [translate]. Branch on code.
package httpapi
