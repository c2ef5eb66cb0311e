package router_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore/dirstore"
	"github.com/leaseholddb/leasehold/etcdlease"
	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
	"github.com/leaseholddb/leasehold/router"
)

// A service on an etcd of its own and a directory of copies: it books a room in a
// tenant's database, hands the tenant off, and finds the booking at the next epoch.
func Example() {
	ctx, dir := context.Background(), must(os.MkdirTemp("", "leasehold-example-"))
	defer os.RemoveAll(dir)
	etcd := must(embedetcd.Start(ctx, embedetcd.Config{Dir: dir + "/etcd"}))
	defer etcd.Close()
	leases := must(etcdlease.Open(ctx, etcdlease.Config{Endpoints: etcd.Endpoints()}))
	defer leases.Close()
	copies := must(dirstore.New(dir+"/copies", dirstore.Options{}))
	defer copies.Close()
	r := must(router.New(router.Options{ReplicaID: "example-1", StateRoot: dir, Leases: leases, Copies: copies}))
	defer r.Close(ctx)

	tenant := must(coord.NewKey("hotel", "t-860cead4b9aab8577b5f03fdeff1ead1"))
	h := must(r.Open(ctx, tenant))
	err := h.Run(ctx, func(ctx context.Context, v *router.View) error {
		_, err := v.DB().ExecContext(ctx, "CREATE TABLE bookings(room); INSERT INTO bookings VALUES (7)")
		return err
	})
	fmt.Println("booked at epoch", h.Epoch(), "acknowledged:", err == nil)
	fmt.Println("handed off:", h.Handoff(ctx) == nil)

	h = must(r.Open(ctx, tenant))
	var room int
	err = h.DB().QueryRowContext(ctx, "SELECT room FROM bookings").Scan(&room)
	fmt.Println("room", room, "at epoch", h.Epoch(), err)
	// Output:
	// booked at epoch e00000001 acknowledged: true
	// handed off: true
	// room 7 at epoch e00000002 <nil>
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
