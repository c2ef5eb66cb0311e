// Package copystore keeps durable copies of tenants' ledgers so that a process
// which only believes that it still owns a tenant cannot harm them. It runs on
// any [Store] that can create an object if it is absent, open, list and delete;
// package copystoretest proves one.
//
// # Objects
//
// Everything of one tenancy of one owner lies under the epoch that the lease
// store granted it:
//
//	<organization>/<tenant>/e<epoch>/origin.json      the claim: what this owner started from
//	<organization>/<tenant>/e<epoch>/snap-<seq>.db    an image of the ledger
//	<organization>/<tenant>/e<epoch>/snap-<seq>.json  its manifest, written last
//
// A copy is an image with a manifest; the manifest is the commit point. No object
// is ever overwritten and no name is used for a second attempt, so an upload
// that lands late cannot damage a committed copy.
//
// # An owner's duties
//
//  1. [Copies.Restore], before anything is served, with the epoch and the
//     forgotten floor of the grant.
//  2. [Copies.Claim], which writes origin.json and names what was restored.
//  3. Prove that the lease is still held. Only then serve. An owner that was
//     paused before its claim may have been passed over by a successor that
//     looked before the claim was there.
//  4. [Publisher.Publish] as often as wanted, one at a time. The lease is proved
//     before the image is taken, before the manifest is written and after the
//     manifest is there; a copy counts as committed only if all three succeed.
//  5. [Publisher.Retain] after a publish succeeded, never before.
//  6. [Copies.Forget] after the floor was raised in the lease store, and again
//     at later opens, off the open path, to sweep what landed late.
//
// # Lineage
//
// A successor with epoch E and floor F looks at the newest claimed epoch between
// them. That epoch's copies come first, newest first; then exactly the copy that
// its origin names, and the older ones of that copy's epoch; then the copy that
// that epoch's origin names, and so on. The first one that verifies wins. Times
// play no part.
//
// This is what makes a zombie harmless. An owner of epoch e that was superseded
// while paused may go on uploading into its own epoch for ever: every later owner
// either claimed without seeing those objects, and its origin leads past them, or
// is descended from one that did. Epochs at or below F are dead whoever wrote
// them.
//
// # When nothing can be trusted
//
// A copy that is missing, changed or not a ledger of this tenant is skipped, with
// a reason. A store that cannot be read is not: the restore fails with
// [coord.CodeCopyStoreUnavailable], because an unreachable newest copy must not
// let an older one be served. If copies exist, or an origin says that they did,
// and none verifies, the restore fails with [coord.RestoreInvalidError]. An
// empty ledger is started only where the lineage shows that there never was a
// copy.
//
// # Bounds
//
// No operation outlasts [Options.CallTimeout] on a small object, nor
// [Options.StallTimeout] (at most twice) without a byte moving on a large one,
// provided the store keeps its promise to return when its context ends. Memory
// is a fixed buffer, whatever the size of a ledger.
package copystore
