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

// CP-1: the order of proofs, image and manifest.
func TestPublishOrder(t *testing.T) {
	w := newWorld(t)
	var trace []string
	o := w.acquire(steps(func(_ int, call string, over bool) error {
		if !over {
			trace = append(trace, call)
		}
		return nil
	}))
	must(t, o.open())
	trace = nil
	m, err := o.pub.Publish(t.Context(), copystore.PublishRequest{
		Dir: o.dir,
		TakeImage: func(_ context.Context, path string) (int64, error) {
			trace = append(trace, "image")
			return 7, os.WriteFile(path, []byte("content"), 0o600)
		},
		Prove: func() error {
			trace = append(trace, "prove")
			return nil
		},
	})
	must(t, err)
	want := []string{"list", "prove", "image", "create e00000001/snap-000001.db", "prove", "create e00000001/snap-000001.json", "prove"}
	if !slices.Equal(trace, want) {
		t.Errorf("publish did %q, want %q", trace, want)
	}
	size, sum := measured("content")
	if m.Size != size || m.SHA256 != sum || m.Events != 7 || m.Owner != "replica-1" || m.Revision != 100 || m.Parent != nil {
		t.Errorf("the manifest is %+v", m)
	}
	if got := o.files(); len(got) > 0 {
		t.Errorf("left %q", got)
	}
	if last, ok := o.pub.Last(); !ok || last.Ref() != m.Ref() {
		t.Errorf("the last copy is %v", last.Ref())
	}
}

// An unchanged ledger costs nothing: no proof, no image, no store call.
func TestPublishThatIsNotNeeded(t *testing.T) {
	opened := false
	o := newWorld(t).acquire(steps(func(_ int, call string, _ bool) error {
		if opened {
			t.Errorf("the store was called: %s", call)
		}
		return nil
	}))
	must(t, o.open())
	opened = true
	unexpected := func() error { t.Error("more was done than asking"); return nil }
	_, err := o.pub.Publish(t.Context(), copystore.PublishRequest{
		Needed:    func() bool { return false },
		Dir:       o.dir,
		TakeImage: func(context.Context, string) (int64, error) { return 0, unexpected() },
		Prove:     unexpected,
	})
	if !errors.Is(err, copystore.ErrNotNeeded) {
		t.Errorf("publish gives %v", err)
	}
}

// A lease that cannot be proved at any of the three points keeps the copy from
// counting.
func TestPublishNeedsEveryProof(t *testing.T) {
	objects := []int{0, 1, 2} // of the copy, when the n-th proof fails
	for n, want := range objects {
		w := newWorld(t)
		o := w.acquire()
		must(t, o.open())
		proofs := 0
		_, err := o.pub.Publish(t.Context(), copystore.PublishRequest{
			Dir: o.dir,
			TakeImage: func(_ context.Context, path string) (int64, error) {
				return 0, os.WriteFile(path, []byte("x"), 0o600)
			},
			Prove: func() error {
				if proofs++; proofs > n {
					return errLost
				}
				return nil
			},
		})
		if coord.CodeOf(err) != coord.CodeLeaseLost {
			t.Errorf("proof %d fails: publish gives %v", n+1, err)
		}
		if _, ok := o.pub.Last(); ok {
			t.Errorf("proof %d fails: the copy counts", n+1)
		}
		if got := len(w.names()) - 1; got != want {
			t.Errorf("proof %d fails: %d objects of the copy, want %d", n+1, got, want)
		}
	}
}

func TestParentsFollowTheLineage(t *testing.T) {
	w := newWorld(t)
	w.tenure("a1", "a2")
	o := w.acquire()
	must(t, o.open())
	var parents []string
	for range 2 {
		must(t, o.publish())
		last, _ := o.pub.Last()
		parents = append(parents, last.Parent.String())
	}
	if want := []string{"e00000001/snap-000002", "e00000002/snap-000001"}; !slices.Equal(parents, want) {
		t.Errorf("parents are %q, want %q", parents, want)
	}
}

// CP-7: requests that come together run one after the other, in order, with
// consecutive seqs.
func TestPublishesTakeTurns(t *testing.T) {
	o := newWorld(t).acquire()
	must(t, o.open())
	entered, release := make(chan struct{}, 8), make(chan struct{})
	running := 0
	request := copystore.PublishRequest{
		Dir: o.dir,
		TakeImage: func(_ context.Context, path string) (int64, error) {
			running++ // the race detector minds if two are here
			entered <- struct{}{}
			<-release
			return 0, os.WriteFile(path, []byte("x"), 0o600)
		},
		Prove: o.held,
	}
	var wg sync.WaitGroup
	seqs := make([]uint64, 5)
	for i := range seqs {
		wg.Go(func() {
			m, err := o.pub.Publish(t.Context(), request)
			seqs[i] = m.Seq
			if err != nil {
				t.Error(err)
			}
		})
	}
	<-entered

	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := o.pub.Publish(impatient, request); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting with a context that has ended gives %v", err)
	}
	close(release)
	wg.Wait()
	slices.Sort(seqs)
	if want := []uint64{1, 2, 3, 4, 5}; !slices.Equal(seqs, want) || running != 5 {
		t.Errorf("seqs are %v", seqs)
	}
}

// Trap 36: an attempt never takes a seq that the store has seen, nor one that an
// upload still under way may fill later.
func TestSeqsComeFromTheStore(t *testing.T) {
	w := newWorld(t)
	fail := ""
	o := w.acquire(steps(func(_ int, call string, over bool) error {
		if fail != "" && strings.HasSuffix(call, fail) && !over {
			return errFault
		}
		return nil
	}))
	must(t, o.open())
	w.put("e00000001/snap-000004.db", "an orphan")
	w.put("e00000001/snap-000007.json.bak", "not ours")
	w.put("e00000001/snap-18446744073709551615.db", "not ours")
	for _, fail = range []string{"000005.db", "000006.json", ""} {
		if err := o.publish(); (err != nil) != (fail != "") {
			t.Fatalf("with %q failing publish gives %v", fail, err)
		}
	}
	if last, _ := o.pub.Last(); last.Seq != 7 || last.Parent != nil {
		t.Errorf("the copy is %+v", last)
	}
	// The failed upload lands after all.
	w.put("e00000001/snap-000005.db", "late")
	must(t, o.publish(), o.retain(1))
	want := []string{"e00000001/origin.json", "e00000001/snap-000007.json.bak", "e00000001/snap-000008.db", "e00000001/snap-000008.json",
		"e00000001/snap-18446744073709551615.db"}
	if got := w.names(); !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
}

// Trap 28: a store that repeats a create of its own may find its own object. That
// is success; somebody else's is a conflict.
func TestOwnObjectIsRecognised(t *testing.T) {
	for way, taking := range takings() {
		for _, part := range []string{"snap-000001.db", "snap-000001.json"} {
			t.Run(part+" "+way, func(t *testing.T) { testOwnObject(t, part, taking) })
			t.Run("foreign "+part+" "+way, func(t *testing.T) { testForeignObject(t, part, taking) })
		}
	}
}

func testOwnObject(t *testing.T, part string, taking func(copystore.Store) copystore.Store) {
	w := newWorld(t)
	o := w.acquire(steps(func(_ int, call string, over bool) error {
		if over && call == "create e00000001/"+part {
			return fmt.Errorf("412: %w", copystore.ErrExists)
		}
		return nil
	}), taking)
	must(t, o.open())
	o.write("a1")
	if err := o.publish(); err != nil {
		t.Fatalf("publish gives %v", err)
	}
	w.checkSuccessor(t)
}

func testForeignObject(t *testing.T, part string, taking func(copystore.Store) copystore.Store) {
	w := newWorld(t)
	o := w.acquire(steps(func(_ int, call string, over bool) error {
		if !over && call == "create e00000001/"+part {
			w.put("e00000001/"+part, "foreign")
		}
		return nil
	}), taking)
	must(t, o.open())
	if err := o.publish(); !errors.Is(err, coord.CodeCopyConflict) {
		t.Errorf("publish gives %v", err)
	}
	if got := w.get("e00000001/" + part); got != "foreign" {
		t.Errorf("the foreign object is now %q", got)
	}
}

// A store that takes less than it was given and calls it done is not believed.
func TestTruncatingStoreIsNotBelieved(t *testing.T) {
	w := newWorld(t)
	o := w.acquire(func(s copystore.Store) copystore.Store { return truncating{s} })
	must(t, o.open())
	if err := o.publish(); !errors.Is(err, coord.CodeCopyStoreUnavailable) {
		t.Errorf("publish gives %v", err)
	}
}

type truncating struct{ copystore.Store }

func (s truncating) Create(ctx context.Context, name string, r io.Reader, size int64) error {
	if strings.HasSuffix(name, ".db") {
		r, size = io.LimitReader(r, size-1), size-1
	}
	return s.Store.Create(ctx, name, r, size)
}

func TestPublishNamesItsOwnFailures(t *testing.T) {
	broken := errors.New("no image")
	cases := map[string]struct {
		take func(path string) error
		want error
	}{
		"image fails":  {func(path string) error { return errors.Join(broken, os.WriteFile(path, []byte("half"), 0o600)) }, broken},
		"no image":     {func(string) error { return nil }, os.ErrNotExist},
		"empty image":  {func(path string) error { return os.WriteFile(path, nil, 0o600) }, nil},
		"a directory":  {func(path string) error { return os.Mkdir(path, 0o700) }, nil},
		"with journal": {func(path string) error { os.WriteFile(path+"-journal", nil, 0o600); return broken }, broken},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			o := w.acquire()
			must(t, o.open())
			_, err := o.pub.Publish(t.Context(), copystore.PublishRequest{
				Dir:       o.dir,
				TakeImage: func(_ context.Context, path string) (int64, error) { return 0, c.take(path) },
				Prove:     o.held,
			})
			if err == nil || c.want != nil && !errors.Is(err, c.want) || coord.CodeOf(err) != "" {
				t.Errorf("publish gives %v, want %v and no code", err, c.want)
			}
			if left, _ := filepath.Glob(filepath.Join(o.dir, ".*")); len(left) > 0 {
				t.Errorf("left %q", left)
			}
			if got := w.names(); len(got) != 1 {
				t.Errorf("the store holds %q", got)
			}
		})
	}
}
