package test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease"
	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
)

// Trap 8, as an operator meets it: a lease that nothing will ever end is shown, and
// ended by a command at the price of an epoch.
func TestEndLeaseCommand(t *testing.T) {
	etcd := embedetcd.StartT(t)
	store, err := etcdlease.Open(t.Context(), etcdlease.Config{Endpoints: etcd.Endpoints(), Options: etcdlease.Options{RequestTimeout: patience / 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	key, err := coord.NewKey("acme", "t-00000000000000000000000000000001")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Acquire(t.Context(), key, "dead", 5*time.Second); err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: etcd.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Put(t.Context(), etcdlease.DefaultPrefix+"owner/"+key.String(), "{}"); err != nil { // without a lease
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"leases"}, etcdlease.StuckForever},
		{[]string{"end-lease", key.String()}, "ended epoch 1 of dead"},
	} {
		out, err := exec.Command(replicaBinary, append(c.args, "--etcd="+etcd.Endpoints()[0])...).Output()
		if err != nil || !strings.Contains(string(out), c.want) {
			t.Errorf("replica %v printed\n%s, %v", c.args, out, err)
		}
	}
	if g, err := store.Acquire(t.Context(), key, "next", time.Minute); err != nil || g.Epoch != 2 {
		t.Errorf("granted %+v, %v", g, err)
	}
}
