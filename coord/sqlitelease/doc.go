// Package sqlitelease keeps leases in a SQLite file that several processes of one
// host share. It implements [coord.LeaseStore], [coord.ReleaseWaiter] and
// [coord.Auditor].
//
// # Clock
//
// The end of a lease is a reading of CLOCK_BOOTTIME, which is the same for every
// process of a host from one boot to the next and takes no notice of the calendar
// being set. A record also says on which boot, and in which time namespace, its
// end was read. To a process of another boot that end means nothing, so the lease
// is taken to be as good as new: it is over when its whole TTL has passed since
// somebody of this boot first saw it, or when it is released. A reboot therefore
// delays a takeover by one TTL and never brings it forward.
//
// # Storage
//
// Triggers in the schema hold, against any caller, what a record promises: the
// epoch moves by exactly one, the revision only forward, the forgotten floor never
// back and never past the epoch, and no record is deleted or replaced. The audit
// trail is written by triggers too, so that no change is without an entry.
//
// Every operation is one transaction that takes the write lock first and reads the
// clock afterwards. The file is in WAL mode and synced on every commit: a granted
// epoch survives a loss of power. The file must be on a local file system.
package sqlitelease
