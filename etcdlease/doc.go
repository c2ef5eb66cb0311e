// Package etcdlease keeps leases in etcd. It implements [coord.LeaseStore] and
// [coord.ReleaseWaiter], and it is the only package of this module that knows
// etcd.
//
// # Keys
//
// Under a prefix, for a lease key K and a replica ID:
//
//	epoch/K     never deleted. Its etcd version, the number of times it was
//	            written, is the epoch; its mod revision R is the tenure's revision
//	owner/K     attached to an etcd lease; exists exactly while the lease is held.
//	            Its create revision equals R
//	floor/K     the forgotten floor, and a base that an operator may have added to
//	            the version: epoch = base + version
//	void/N      attached to an etcd lease: the acquisition with nonce N must not
//	            be applied any more
//	released    the latest release of all; its history says which removals of an
//	            owner key were releases
//	cluster     the id of the etcd cluster that the prefix was first used on
//	replica/ID  attached to an etcd lease: the registry of replicas
//	want/K/ID   attached to the same lease: replica ID asks the owner of K to hand
//	            it off. One key for each asker, so that the death of one takes no
//	            other's request with it
//
// # Acquire
//
// An acquisition is one transaction with no read before it: if owner/K does not
// exist, write epoch/K and owner/K and read what epoch/K and floor/K became. etcd
// counts the epoch, so no client can skip, repeat or invent one. Every later write
// about a tenure compares the create revision of owner/K with R, so it cannot
// touch another tenure, however late it arrives; and the value of epoch/K, whose nonce
// no other grant has, because an etcd that was restored from a backup counts revisions
// again.
//
// # Shared leases
//
// One etcd lease carries up to [Options.KeysPerLease] keys of a [Store] that asked
// for the same TTL, because an etcd lease is dear and a key on it is cheap. What
// sharing must not change is the meaning of one key's lease:
//
//   - A renewal counts only if its keepalive was sent after the caller asked.
//     Callers that arrive while a keepalive is in flight share the next one, and a
//     renewal that is in no hurry waits a moment for others: see round. The same round asks etcd which keys hang on the lease, so a key that
//     somebody else deleted is not renewed in its absence.
//   - An acquisition onto a lease that is there already is covered only from the
//     last keepalive of that lease. A keepalive sent after the acquisition began
//     runs in parallel with the transaction, and the grant is reported when both
//     have succeeded; otherwise the key is handed back.
//   - A key that was not renewed for its TTL is over although its etcd lease lives
//     on for the others. Each tenure has its own end on this process's clock,
//     counted from before the request that last moved it, so never later than the
//     end etcd would have chosen for a lease of its own. Past it Renew refuses and
//     the owner key is removed, by Renew or by the janitor, whoever is first.
//     While etcd answers nobody, the lease is not kept alive for others either, so
//     etcd alone decides: a key whose lease etcd still has when it answers again
//     goes on.
//   - Nothing is renewed without a caller. A lease that nobody renews expires,
//     and the next acquisition makes a new one.
//
// # Unclear answers
//
// A transaction whose answer was lost may have been applied, may never be, or may
// be applied later. It is settled by a second transaction that decides which: if
// epoch/K holds the value of the attempt, which contains a nonce, it was applied,
// and the grant is taken over, or removed if its caller has gone. If it does not,
// void/N is written in the same transaction, and the attempt, which compares
// against void/N, cannot be applied afterwards. void/N hangs on the etcd lease that
// the attempt needs to exist, so the two end together and no garbage remains.
// Settling can be repeated, so an attempt whose settlement is unclear as well is
// settled again by the janitor until an answer is heard; the slot of its key stays
// taken meanwhile. A key is therefore never kept alive without a handle for longer
// than etcd is out of reach, plus one pass of the janitor.
//
// A release that was begun is finished: if its answer is lost, the tenure counts
// as over here, Renew refuses it, and the janitor goes on removing the key. A
// forget is read back.
//
// # Another etcd
//
// Epochs are safe as long as etcd's history is one. A Store remembers the cluster id
// and the revision of every answer, and the prefix holds the id of the cluster it was
// first used on. If the id changes, or a linearizable answer is older than what was
// known before it was asked for, the Store refuses everything from then on:
// acquisitions with [coord.CodeEpochRolledBack], renewals with [coord.CodeLeaseLost]
// and that as the cause. A process that starts on an etcd which went back
// in time without changing its id has nothing to compare; there the durable copies
// tell. [Store.RaiseEpoch] is what an operator does about it.
//
// # Time
//
// etcd counts leases in whole seconds and has a minimum. TTLs are rounded up, and
// the TTL that is reported is the one in etcd's answer. etcd keeps no end per key:
// the LeaseUntil of a record that is held is the latest moment at which it can end
// unless it is renewed again.
//
// # Instances
//
// A tenure belongs to its owner's name, not to a Store. A Store that does not know
// a tenure looks it up; to renew it, it first moves the owner key onto an etcd
// lease of its own, so that no Store ever keeps another one's leases alive.
package etcdlease
