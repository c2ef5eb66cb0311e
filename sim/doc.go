// Package sim runs a fleet of replicas in one process, on simulated stores and simulated
// time, has everything go wrong that may, and checks what clients saw. The routers, the
// guarded databases with their SQLite files, the copies and the ledgers are the real ones;
// only the two stores, the network to them, the clocks and the clients are made up.
//
// # One seed, one history
//
// [Run] makes one history. Everything in it follows from the seed: a scheduler lets one
// goroutine go on at a time and chooses which. A goroutine of the fleet waits for the
// scheduler
//
//   - with each request to a store, until the request arrives, and until the answer does;
//   - at each look at the clock by a gate: before the work, at the last proof inside a
//     commit and once more before the commit itself, before an acknowledgement, and around
//     every manifest;
//   - at each timer and each timeout, which are by the clock of its process.
//
// In between anything else may happen: other clients and replicas go on, time passes, a
// process is stopped or killed. How the goroutines that one step sets going run beside
// each other does not matter, because each soon waits again, and the scheduler looks at
// what waits in an order of its own. It knows that nothing runs any more from
// testing/synctest, in whose bubble every history lives; that a bubble's time stands still
// while anything runs is what makes SQLite, which takes real time, take none.
//
// # What goes wrong
//
// A [Fault] is a line of text: what, to whom, when, and for how long. The seed makes them
// up, or [Config.Faults] lists them; the same seed with the same list makes the same
// history. Processes are stopped and killed, at any moment or at a given site; they are cut
// off from either store; requests are refused, applied and reported as failed, never
// answered, delivered long after their caller gave up, or twice; clocks differ in offset and
// rate; copies rot and vanish; the lease store falls back to an old backup. What a killed
// process had on its disk is there when it starts again. Most histories have a plot: faults
// that seldom meet by themselves, and clients who are busy with what they may spoil.
//
// # What clients do
//
// They open tenants, by asking or by waiting for the owner to honour their request; append,
// assign and read, in one step and in several; ask for copies; hand tenants off, to nobody or
// to a replica that has fetched the newest copy before; abandon and forget them. What nobody
// uses goes to rest and is woken again, and in some histories it is handed off.
//
// # What is checked
//
// Clients and stores write a [history.History], which [history.Check] judges. Beside that
// the simulation knows what nobody in a fleet can, and judges it at once: whether a tenure
// still stood in the store at the very moment of an acknowledgement, and at every step for
// each gate that is open; whether each opening
// found what its predecessors left, and nothing else; whether an object was overwritten, or
// a manifest written without its image. When the faults have ended, every call must return,
// every tenant must serve within a bounded time, a shutdown must lose nothing, and after that,
// or a crash of the whole fleet, another replica must serve what there is.
//
// # What is not
//
// A rolled back lease store is away for longer than a lease before it is back, as it is when
// somebody restores it; and since a tenant's forgotten floor is kept nowhere else, nobody
// forgets a tenant in such a history. The lease store is a model of package etcdlease, not
// the package: see leaseClient. It renews tenures one by one; what a replica does where the
// store renews many at once is tested with the router. The stores are linearizable.
package sim
