package etcdlease_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease"
	"github.com/leaseholddb/leasehold/etcdlease/embedetcd"
)

// A phoenix is an etcd that can be stopped and started again on the same address,
// on the same data or on other.
type phoenix struct {
	t      *testing.T
	server *embedetcd.Server
	addr   string
}

func (p *phoenix) start(dir string) {
	p.t.Helper()
	addr := p.addr
	if addr == "" {
		addr = embedetcd.FreeAddrT(p.t)
	}
	server, err := embedetcd.Start(p.t.Context(), embedetcd.Config{Dir: dir, ClientAddr: addr, UnsafeNoSync: true})
	if err != nil {
		p.t.Fatal(err)
	}
	p.server, p.addr = server, strings.TrimPrefix(server.Endpoints()[0], "http://")
}

func (p *phoenix) stop() {
	p.t.Helper()
	if err := p.server.Close(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *phoenix) open() *etcdlease.Store {
	p.t.Helper()
	// An acquisition that is given up may use an epoch up, and these tests count them.
	return open(p.t, nil, func(c *etcdlease.Config) { c.Endpoints = []string{p.addr} })
}

// insist repeats f until etcd answers again.
func insist(t *testing.T, f func() error) error {
	t.Helper()
	for range 6000 {
		if err := f(); !errors.Is(err, coord.CodeLeaseStoreUnavailable) {
			return err
		}
		time.Sleep(20 * time.Millisecond) // the connection comes back by itself
	}
	t.Fatal("etcd did not come back")
	return nil
}

func through(t *testing.T, s *etcdlease.Store, k coord.Key, from, to coord.Epoch) (last coord.Grant) {
	t.Helper()
	for epoch := from; epoch <= to; epoch++ {
		if epoch > from {
			if err := s.Release(t.Context(), last.Tenure); err != nil {
				t.Fatal(err)
			}
		}
		if err := insist(t, func() (err error) {
			last, err = s.Acquire(t.Context(), k, "a", time.Minute)
			return err
		}); err != nil || last.Epoch != epoch {
			t.Fatalf("granted %+v, %v, want epoch %d", last, err, epoch)
		}
	}
	return last
}

// Trap 21: etcd's data of epoch 7, restored at epoch 9. A Store that saw the later
// epochs refuses and ends what it holds; what it had not seen an operator's base
// keeps from being granted again.
func TestEtcdRestoredFromABackup(t *testing.T) {
	t.Parallel()
	p := &phoenix{t: t}
	dir, backup := filepath.Join(t.TempDir(), "etcd"), filepath.Join(t.TempDir(), "backup")
	p.start(dir)
	s := p.open()
	seventh := through(t, s, key(t, 1), 1, 7)
	if err := s.Release(t.Context(), seventh.Tenure); err != nil {
		t.Fatal(err)
	}
	p.stop()
	if err := os.CopyFS(backup, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	p.start(dir)
	ninth := through(t, s, key(t, 1), 8, 9)
	p.stop()
	p.start(backup)
	defer p.stop()

	err := insist(t, func() error { return renewErr(t, s, ninth.Tenure, time.Minute) })
	wantCode(t, err, coord.CodeLeaseLost)
	wantCode(t, err, coord.CodeEpochRolledBack)
	for _, k := range []coord.Key{key(t, 1), key(t, 2)} {
		_, err := s.Acquire(t.Context(), k, "b", time.Minute)
		wantCode(t, err, coord.CodeEpochRolledBack)
		_, _, err = s.Read(t.Context(), k)
		wantCode(t, err, coord.CodeEpochRolledBack)
	}

	operator := p.open()
	for range 2 {
		if latest, err := operator.RaiseEpoch(t.Context(), key(t, 1), 9); err != nil || latest != 9 {
			t.Fatalf("raised to %d, %v", latest, err)
		}
	}
	if latest, err := operator.RaiseEpoch(t.Context(), key(t, 1), 3); err != nil || latest != 9 {
		t.Errorf("raised to %d, %v", latest, err)
	}
	next := p.open()
	g := through(t, next, key(t, 1), 10, 10)
	_, err = operator.RaiseEpoch(t.Context(), key(t, 1), 20)
	wantCode(t, err, coord.CodeLeaseHeld)
	if _, err := next.MarkForgotten(t.Context(), g.Tenure); err != nil {
		t.Fatal(err)
	}
	if r := read(t, next, key(t, 1)); r.Epoch != 10 || r.ForgottenAt != 10 {
		t.Errorf("recorded %+v", r)
	}
	if err := next.Release(t.Context(), g.Tenure); err != nil {
		t.Fatal(err)
	}
	if latest, err := operator.RaiseEpoch(t.Context(), key(t, 3), 4); err != nil || latest != 4 {
		t.Errorf("a key that was never granted: raised to %d, %v", latest, err)
	}
	fifth := through(t, next, key(t, 3), 5, 5)
	if last := through(t, next, key(t, 1), 11, 12); g.RaisedTo != 9 || last.RaisedTo != 9 {
		t.Errorf("raised to %d, and after a forget to %d, want 9", g.RaisedTo, last.RaisedTo)
	}
	if err := next.Release(t.Context(), fifth.Tenure); err != nil {
		t.Fatal(err)
	}
	// The epochs need no raising, but the revisions of what was granted before do not count.
	if latest, err := operator.RaiseEpoch(t.Context(), key(t, 3), 5); err != nil || latest != 5 {
		t.Errorf("raised to %d, %v", latest, err)
	}
	if last := through(t, next, key(t, 3), 6, 6); fifth.RaisedTo != 4 || last.RaisedTo != 5 {
		t.Errorf("raised to %d, then to %d, want 4 and 5", fifth.RaisedTo, last.RaisedTo)
	}
}

// Traps 21 and 12: an etcd that was restored counts revisions and epochs again, so that two
// grants of one key may have both in common. What the earlier owner still sends, having
// heard nothing since, does nothing to the later one's.
func TestGrantOfTheSameRevision(t *testing.T) {
	t.Parallel()
	p := &phoenix{t: t}
	dir, backup := filepath.Join(t.TempDir(), "etcd"), filepath.Join(t.TempDir(), "backup")
	p.start(dir)
	keys := []coord.Key{key(t, 1), key(t, 2), key(t, 3), key(t, 4)}
	earlier := p.open()
	if err := earlier.Release(t.Context(), acquire(t, earlier, key(t, 9), "a", time.Minute).Tenure); err != nil {
		t.Fatal(err) // so that its lease is in the backup
	}
	p.stop()
	if err := os.CopyFS(backup, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	grants := func(s *etcdlease.Store, owner string) (all []coord.Grant) {
		for _, k := range keys {
			var g coord.Grant
			if err := insist(t, func() (err error) {
				g, err = s.Acquire(t.Context(), k, owner, 2*time.Minute)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			all = append(all, g)
		}
		return all
	}
	p.start(dir)
	theirs := grants(earlier, "a")
	p.stop()
	p.start(backup)
	defer p.stop()
	later := p.open()
	ours := grants(later, "b")
	for i := range keys {
		if theirs[i].Epoch != ours[i].Epoch || theirs[i].Revision != ours[i].Revision {
			t.Fatalf("granted %+v and %+v: the test shows nothing", theirs[i], ours[i])
		}
	}

	lost := map[string]func(coord.Tenure) error{
		"release": func(ten coord.Tenure) error { return earlier.Release(t.Context(), ten) },
		"renew":   func(ten coord.Tenure) error { return renewErr(t, earlier, ten, 2*time.Minute) },
		"move":    func(ten coord.Tenure) error { return renewErr(t, earlier, ten, 3*time.Minute) },
		"forget": func(ten coord.Tenure) error {
			_, err := earlier.MarkForgotten(t.Context(), ten)
			return err
		},
	}
	for i, what := range []string{"release", "renew", "move", "forget"} {
		if err := insist(t, func() error { return lost[what](theirs[i].Tenure) }); !errors.Is(err, coord.CodeLeaseLost) {
			t.Errorf("%s: %v", what, err)
		}
		if r := read(t, later, keys[i]); !r.Held || r.Owner != "b" || r.ForgottenAt != 0 {
			t.Errorf("after a %s of the earlier tenure: %+v", what, r)
		}
		if err := renewErr(t, later, ours[i].Tenure, 2*time.Minute); err != nil {
			t.Errorf("after a %s of the earlier tenure: %v", what, err)
		}
	}
}

// Another cluster under a running Store fences everything.
func TestEtcdReplaced(t *testing.T) {
	t.Parallel()
	p := &phoenix{t: t}
	p.start(filepath.Join(t.TempDir(), "first"))
	s, idle := p.open(), p.open()
	g := acquire(t, s, key(t, 1), "a", time.Minute)
	p.stop()
	p.start(filepath.Join(t.TempDir(), "second"))
	defer p.stop()
	// What notices it is the answer to an acquisition that the other etcd has granted.
	wantCode(t, insist(t, func() error {
		_, err := idle.Acquire(t.Context(), key(t, 2), "a", time.Minute)
		return err
	}), coord.CodeEpochRolledBack)
	err := insist(t, func() error { return renewErr(t, s, g.Tenure, time.Minute) })
	wantCode(t, err, coord.CodeLeaseLost)
	_, err = s.Acquire(t.Context(), key(t, 1), "a", time.Minute)
	wantCode(t, err, coord.CodeEpochRolledBack)
	wantCode(t, s.Release(t.Context(), g.Tenure), coord.CodeLeaseLost)
}

// A process that starts on a cluster which was made from another one's backup has
// only the prefix to tell it so.
func TestPrefixOfAnotherCluster(t *testing.T) {
	t.Parallel()
	c := etcd(t)
	acquire(t, open(t, nil), key(t, 1), "a", time.Minute)
	if _, err := c.Put(t.Context(), prefix(t)+"cluster", "1234"); err != nil {
		t.Fatal(err)
	}
	s := open(t, nil)
	_, err := s.Acquire(t.Context(), key(t, 2), "a", ttl)
	wantCode(t, err, coord.CodeEpochRolledBack)
	if _, err := s.RaiseEpoch(t.Context(), key(t, 2), 5); err != nil {
		t.Fatal(err)
	}
	if err := s.ConfirmCluster(t.Context()); err != nil {
		t.Fatal(err)
	}
	if g := acquire(t, open(t, nil), key(t, 2), "a", ttl); g.Epoch != 6 {
		t.Errorf("granted %+v", g)
	}
}

// A process that could not ask which cluster it is on does not start on it.
func TestClusterThatDoesNotSay(t *testing.T) {
	t.Parallel()
	w := &wire{}
	w.set(func(w *wire) {
		w.unary = func(_ string, req any) fault {
			if isTxn(req) {
				return loseRequest
			}
			return noFault
		}
	})
	_, err := etcdlease.Open(t.Context(), etcdlease.Config{
		Endpoints: endpoints, DialOptions: w.options(), Options: etcdlease.Options{Prefix: prefix(t)},
	})
	wantCode(t, err, coord.CodeLeaseStoreUnavailable)
}

// Where the prefix says nothing of its cluster, as when only some of its keys were
// brought over, the grants themselves do.
func TestGrantsOfAnotherCluster(t *testing.T) {
	t.Parallel()
	c := etcd(t)
	acquire(t, open(t, nil), key(t, 1), "a", time.Minute)
	record := prefix(t) + "epoch/" + key(t, 1).String()
	value, _ := get(t, c, record)
	var stamp struct {
		Cluster string `json:"cluster"`
		Reached int64  `json:"reached"`
	}
	if err := json.Unmarshal([]byte(value), &stamp); err != nil || stamp.Cluster == "" || stamp.Reached == 0 {
		t.Fatalf("the grant is stamped %+v, %v", stamp, err)
	}
	for _, change := range []struct {
		value  string
		refuse bool
	}{{value, false}, {strings.Replace(value, stamp.Cluster, "1234", 1), true}} {
		if _, err := c.Delete(t.Context(), prefix(t)+"cluster"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Put(t.Context(), record, change.value); err != nil {
			t.Fatal(err)
		}
		s := open(t, nil)
		if _, err := s.Acquire(t.Context(), key(t, 2), "a", ttl); errors.Is(err, coord.CodeEpochRolledBack) != change.refuse {
			t.Errorf("granted by %s: %v", change.value, err)
		}
	}
	s := open(t, nil)
	if err := s.ConfirmCluster(t.Context()); err != nil {
		t.Fatal(err)
	}
	acquire(t, open(t, nil), key(t, 3), "a", ttl)
}
