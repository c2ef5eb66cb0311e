package copystore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
)

// A world is one tenant with its lease, reduced to the latest epoch and the
// floor, and a copy store. Ledgers are text files: a header line that names the
// tenant and one line per event.
type world struct {
	t     testing.TB
	store copystore.Store
	key   coord.Key
	dir   string // holds the directories of the owners

	newestWins bool // owners restore the newest copy of all, whatever the lineage says

	mu struct {
		sync.Mutex
		latest, floor coord.Epoch
		reported      []report
	}
}

// A report is content that an owner was told is safe.
type report struct {
	epoch   coord.Epoch
	content []string
	start   bool // what the owner began to serve with
}

func newWorld(t testing.TB) *world {
	return &world{t: t, store: newStore(t), key: testKey(t, "a"), dir: scratch(t)}
}

// scratch makes a directory in memory where the platform has that: the tests
// restore thousands of times and wait for the disk in each.
func scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "copystore-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func testKey(t testing.TB, digit string) coord.Key {
	t.Helper()
	key, err := coord.NewKey("acme", "t-"+strings.Repeat(digit, 32))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

var errLost = &coord.Error{Code: coord.CodeLeaseLost}

// held is the proof of the lease.
func (w *world) held(e coord.Epoch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.latest != e {
		return errLost
	}
	return nil
}

func (w *world) report(e coord.Epoch, content []string, start bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.reported = append(w.mu.reported, report{e, slices.Clone(content), start})
}

// An owner is one tenure.
type owner struct {
	w        *world
	copies   *copystore.Copies
	grant    coord.Grant
	dir      string
	content  []string
	restored copystore.Restored
	pub      *copystore.Publisher
	midImage func() // called while the image is taken; may be nil
}

// acquire grants the next epoch to a new owner, who sees the store through wrap.
func (w *world) acquire(wrap ...func(copystore.Store) copystore.Store) *owner {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.latest++
	e := w.mu.latest
	var store copystore.Store = w.store
	for _, f := range wrap {
		store = f(store)
	}
	copies, err := copystore.New(store, copystore.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	return &owner{
		w:      w,
		copies: copies,
		grant: coord.Grant{
			Tenure:      coord.Tenure{Key: w.key, Owner: fmt.Sprintf("replica-%d", e), Epoch: e},
			Revision:    coord.Revision(100 * e),
			ForgottenAt: w.mu.floor,
		},
		dir: filepath.Join(w.dir, e.String()),
	}
}

func (o *owner) path() string { return filepath.Join(o.dir, "ledger.db") }
func (o *owner) held() error  { return o.w.held(o.grant.Epoch) }

func (o *owner) request() copystore.RestoreRequest {
	return copystore.RestoreRequest{
		Path:      o.path(),
		Verify:    func(_ context.Context, path string) (int64, error) { return verify(o.w.key, path) },
		StillHeld: o.held,
		Prove:     o.held,
	}
}

func verify(key coord.Key, path string) (int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if lines[0] != header(key) {
		return 0, &coord.Error{Code: coord.CodeLedgerInvalid, Detail: "not a ledger of this tenant"}
	}
	return int64(len(lines) - 1), nil
}

func header(key coord.Key) string { return "ledger of " + key.String() }

func image(key coord.Key, content []string) string {
	return strings.Join(append([]string{header(key)}, content...), "\n") + "\n"
}

func (o *owner) restore() error {
	restore := o.copies.Restore
	if o.w.newestWins {
		restore = o.restoreNewest
	}
	restored, err := restore(context.Background(), o.grant, o.request())
	if err != nil {
		return err
	}
	o.restored, o.content = restored, nil
	if restored.Manifest != nil {
		b, err := os.ReadFile(o.path())
		if err != nil {
			return err
		}
		o.content = strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")[1:]
	}
	return nil
}

// restoreNewest is what a restore would be that knew no lineage.
func (o *owner) restoreNewest(ctx context.Context, grant coord.Grant, req copystore.RestoreRequest) (copystore.Restored, error) {
	tree, err := o.copies.Tree(ctx, grant.Key, grant.ForgottenAt)
	if err := errors.Join(err, os.MkdirAll(o.dir, 0o700)); err != nil {
		return copystore.Restored{}, err
	}
	for _, e := range tree.Epochs {
		for _, c := range e.Copies {
			m, err := o.copies.Extract(ctx, grant.Key, c.Ref, copystore.ExtractRequest{Path: req.Path, Verify: req.Verify})
			if err == nil {
				return copystore.Restored{Manifest: &m}, nil
			}
		}
	}
	return copystore.Restored{}, nil
}

// open restores, claims and proves. What it starts with is as good as reported.
func (o *owner) open() error {
	if err := o.restore(); err != nil {
		return err
	}
	pub, err := o.copies.Claim(context.Background(), o.grant, o.restored.From())
	if err != nil {
		return err
	}
	if err := o.held(); err != nil {
		return err
	}
	o.pub = pub
	o.w.report(o.grant.Epoch, o.content, true)
	return nil
}

func (o *owner) write(event string) { o.content = append(o.content, event) }

func (o *owner) publish() error {
	var taken []string
	_, err := o.pub.Publish(context.Background(), copystore.PublishRequest{
		Dir: o.dir,
		TakeImage: func(_ context.Context, path string) (int64, error) {
			if o.midImage != nil {
				o.midImage()
			}
			taken = slices.Clone(o.content)
			return int64(len(taken)), os.WriteFile(path, []byte(image(o.w.key, taken)), 0o600)
		},
		Prove: o.held,
	})
	if err == nil {
		o.w.report(o.grant.Epoch, taken, false)
	}
	return err
}

func (o *owner) retain(keep int) error {
	_, err := o.pub.Retain(context.Background(), keep)
	return err
}

func (o *owner) forget() (int, error) {
	o.w.mu.Lock()
	if o.w.mu.latest == o.grant.Epoch {
		o.w.mu.floor = o.grant.Epoch
	}
	floor := o.w.mu.floor
	o.w.mu.Unlock()
	return o.copies.Forget(context.Background(), o.w.key, floor)
}

// must ends the test at the first error.
func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// names lists the store below the tenant's prefix.
func (w *world) names() []string {
	w.t.Helper()
	var names []string
	for o, err := range w.store.List(context.Background(), w.key.String()+"/") {
		must(w.t, err)
		names = append(names, strings.TrimPrefix(o.Name, w.key.String()+"/"))
	}
	return names
}

func (w *world) get(name string) string {
	w.t.Helper()
	r, err := w.store.Open(context.Background(), w.key.String()+"/"+name)
	must(w.t, err)
	defer r.Close()
	b, err := io.ReadAll(r)
	must(w.t, err)
	return string(b)
}

func (w *world) remove(name string) {
	w.t.Helper()
	must(w.t, w.store.Delete(context.Background(), w.key.String()+"/"+name))
}

// put replaces an object, as damage does.
func (w *world) put(name, body string) {
	w.t.Helper()
	w.remove(name)
	must(w.t, w.store.Create(context.Background(), w.key.String()+"/"+name, strings.NewReader(body), int64(len(body))))
}

// contains reports the first line of want that content lacks.
func contains(content, want []string) error {
	for _, line := range want {
		if !slices.Contains(content, line) {
			return fmt.Errorf("%q is missing from %q", line, content)
		}
	}
	return nil
}

// tenure opens, writes and publishes each event in turn.
func (w *world) tenure(events ...string) *owner {
	w.t.Helper()
	o := w.acquire()
	must(w.t, o.open())
	for _, e := range events {
		o.write(e)
		must(w.t, o.publish())
	}
	return o
}
