// Package ledger is the append-only event log that a tenant's database holds: its
// schema, appending and reading, and the verification that a file is such a ledger.
//
// # What the database itself guarantees
//
// The invariants are triggers, so they hold for whoever writes, plain SQL
// included:
//
//   - An event is never updated, replaced or deleted.
//   - Every event carries this tenant's id.
//   - Sequence numbers are 1, 2, 3, … in the order of commit, without gaps.
//   - An idempotency key occurs once.
//   - The fold, one row of ledger_fold, says how many events there are and the
//     last sequence number. It moves with each insert, and cannot be moved
//     otherwise.
//
// A statement that would break one fails as a whole. [Verify] checks, without
// trusting the file, that the triggers are there and unaltered and that the fold
// is what the events add up to.
//
// # Life of a file
//
// [Create] makes a ledger and [Verify] checks one. Both open the file by
// themselves, so nobody else may have it open: they come before the guarded database
// is opened, never beside it. [New] works on a database that is open.
//
// # Idempotency
//
// An append that carries an idempotency key which exists inserts nothing: if
// the body is the same it returns the event that is there, otherwise it fails
// with [coord.CodeIdempotencyConflict]. The key is stored in the event, so it is
// committed with the effect and travels with every copy. After an error that leaves
// the outcome open, repeat the append with the same key.
package ledger
