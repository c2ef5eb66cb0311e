package copystore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/copystore/memstore"
)

// A model is a listing as the protocol sees it: which origins there are and what
// they name, which manifests, and which of them have an image that verifies.
type model struct {
	origins   map[coord.Epoch]*copystore.Ref // nil: started empty
	broken    map[coord.Epoch]bool           // origins that cannot be read
	manifests map[copystore.Ref]bool         // value: does the copy verify
	newest    coord.Epoch                    // of anything
}

// choose is the choice of the lineage, written down a second time and as plainly
// as possible. It returns the copy, or nil, or an error's code.
func (m model) choose(granted, floor coord.Epoch) (*copystore.Ref, coord.Code) {
	if m.newest >= granted {
		return nil, coord.CodeEpochRolledBack
	}
	var epoch coord.Epoch
	for e := range m.origins {
		if e > floor && e < granted {
			epoch = max(epoch, e)
		}
	}
	for ref := range m.manifests {
		if ref.Epoch > floor && ref.Epoch < granted {
			epoch = max(epoch, ref.Epoch)
		}
	}
	if epoch == 0 {
		return nil, ""
	}
	existed := false
	limit := uint64(1 << 32)
	for epoch > floor {
		for seq := limit; seq > 0; seq-- {
			ref := copystore.Ref{Epoch: epoch, Seq: min(seq, maxModelSeq)}
			seq = ref.Seq
			good, there := m.manifests[ref]
			if good {
				return &ref, ""
			}
			existed = existed || there
		}
		from, claimed := m.origins[epoch]
		if !claimed || m.broken[epoch] {
			return nil, coord.CodeRestoreInvalid
		}
		if from == nil {
			break
		}
		epoch, limit = from.Epoch, from.Seq
		existed = existed || epoch > floor
	}
	if existed {
		return nil, coord.CodeRestoreInvalid
	}
	return nil, ""
}

const (
	maxModelSeq   = 4
	maxModelEpoch = 6
)

// build makes a store from arbitrary bytes, three for each object, and the model
// of it.
func build(t testing.TB, key coord.Key, input []byte) (*memstore.Store, model) {
	store := memstore.New()
	m := model{map[coord.Epoch]*copystore.Ref{}, map[coord.Epoch]bool{}, map[copystore.Ref]bool{}, 0}
	put := func(name, body string) bool {
		return store.Create(context.Background(), key.String()+"/"+name, strings.NewReader(body), int64(len(body))) == nil
	}
	images, wrong := map[copystore.Ref]bool{}, map[copystore.Ref]bool{}
	for ; len(input) >= 3; input = input[3:] {
		what, detail := input[0]%8, input[2]
		ref := copystore.Ref{Epoch: coord.Epoch(input[1]%maxModelEpoch + 1), Seq: uint64(input[1]/maxModelEpoch%maxModelSeq + 1)}
		body := image(key, []string{ref.String()})
		origin := ref.Epoch.String() + "/origin.json"
		known := true
		switch {
		case what < 2: // an origin
			var from *copystore.Ref
			if e := coord.Epoch(detail % maxModelEpoch); e > 0 && e < ref.Epoch {
				from = &copystore.Ref{Epoch: e, Seq: uint64(detail/maxModelEpoch%maxModelSeq + 1)}
			}
			if put(origin, encodeOrigin(t, key, ref.Epoch, from)) {
				m.origins[ref.Epoch] = from
			}
		case what == 2 && detail%4 == 0: // one that cannot be read
			if put(origin, "damaged") {
				m.origins[ref.Epoch], m.broken[ref.Epoch] = nil, true
			}
		case what < 6: // a copy, or a piece of one
			if detail%8 != 0 && put(ref.String()+".db", body) {
				images[ref] = true
			}
			if detail%8 != 1 && put(ref.String()+".json", encodeManifest(t, key, ref, body, 1)) {
				m.manifests[ref] = false
			}
		case what == 6: // a copy that does not verify
			if put(ref.String()+".db", body) {
				images[ref] = true
			}
			if put(ref.String()+".json", encodeManifest(t, key, ref, body, 2)) {
				m.manifests[ref] = false
				wrong[ref] = true
			}
		default: // something else
			put(fmt.Sprintf("%s/snap-%d", ref.Epoch, detail), "junk")
			put(fmt.Sprintf("junk-%d", detail), "junk")
			known = false
		}
		if known {
			m.newest = max(m.newest, ref.Epoch)
		}
	}
	for ref := range m.manifests {
		m.manifests[ref] = images[ref] && !wrong[ref]
	}
	return store, m
}

// checkChoice compares Restore with the model on an arbitrary listing.
func checkChoice(t *testing.T, dir string, granted, floor uint8, input []byte) coord.Code {
	t.Helper()
	key := testKey(t, "a")
	store, m := build(t, key, input)
	g := coord.Epoch(granted%(maxModelEpoch+2) + 1)
	f := min(coord.Epoch(floor%maxModelEpoch), g-1)
	want, code := m.choose(g, f)

	copies, err := copystore.New(store, copystore.Options{})
	must(t, err)
	path := filepath.Join(dir, "ledger.db")
	got, err := copies.Restore(t.Context(), coord.Grant{
		Tenure:      coord.Tenure{Key: key, Owner: "replica", Epoch: g},
		Revision:    100, // above all that the model writes
		ForgottenAt: f,
	}, copystore.RestoreRequest{
		Path:      path,
		Verify:    func(_ context.Context, path string) (int64, error) { return verify(key, path) },
		StillHeld: func() error { return nil },
		Prove:     func() error { return nil },
	})
	if coord.CodeOf(err) != code || (err == nil) != (code == "") {
		t.Fatalf("restore gives %v, want code %q", err, code)
	}
	if err != nil {
		return code
	}
	from := got.From()
	if (from == nil) != (want == nil) || from != nil && *from != *want {
		t.Fatalf("restored %v, want %v", from, want)
	}
	b, err := os.ReadFile(path)
	switch {
	case from == nil && !errors.Is(err, os.ErrNotExist):
		t.Fatalf("nothing restored, but there is a file (%v)", err)
	case from != nil && string(b) != image(key, []string{from.String()}):
		t.Fatalf("the file of %v is %q (%v)", from, b, err)
	}
	return "restored"
}

// FuzzLineage walks arbitrary listings, some of which no owner could have made.
func FuzzLineage(f *testing.F) {
	f.Add(uint8(2), uint8(0), []byte{0, 0, 0, 3, 0, 2, 0, 1, 1, 3, 1, 2})
	f.Add(uint8(3), uint8(1), []byte{0, 1, 1, 6, 1, 0, 3, 0, 2, 0, 0, 0})
	f.Add(uint8(5), uint8(0), []byte{2, 2, 0, 3, 2, 0, 7, 7, 7})
	dir := scratch(f)
	f.Fuzz(func(t *testing.T, granted, floor uint8, input []byte) {
		if len(input) > 120 {
			return
		}
		checkChoice(t, dir, granted, floor, input)
	})
}

// The same on many random listings, in every run of the tests.
func TestChoiceAgreesWithModel(t *testing.T) {
	dir := scratch(t)
	random := rand.New(rand.NewPCG(1, 2))
	seen := map[coord.Code]int{}
	for range 3000 {
		input := make([]byte, 3*(1+random.IntN(16)))
		for i := range input {
			input[i] = byte(random.Uint32())
		}
		seen[checkChoice(t, dir, uint8(4+random.IntN(4)), uint8(random.IntN(4)), input)]++
	}
	for _, code := range []coord.Code{"restored", coord.CodeEpochRolledBack, coord.CodeRestoreInvalid} {
		if seen[code] < 100 {
			t.Errorf("only %d listings end with %q: %v", seen[code], code, seen)
		}
	}
}

// A name has one spelling: no second one may stand for the same copy.
func TestOtherSpellingsAreNoObjects(t *testing.T) {
	w := newWorld(t)
	w.tenure("a1")
	m := w.get("e00000001/snap-000001.json")
	for _, name := range []string{
		"e1/snap-000001.json", "e00000001/snap-1.json", "e00000001/snap-0000001.json", "e00000001/snap-000000.json",
		"e00000001/snap-000002.json.json", "e00000001/x/snap-000002.json", "e000000001/origin.json", "e00000000/origin.json",
		"snap-000002.json", "e00000001/000002.json", "e00000001/snap-9223372036854775807.db", "e00000001/snap-99999999999999999999.db",
	} {
		w.put(name, m)
	}
	o := w.acquire()
	must(t, o.open())
	if !slices.Equal(o.content, []string{"a1"}) || len(o.restored.Skipped) > 0 {
		t.Errorf("restored %q, skipped %v", o.content, o.restored.Skipped)
	}
}
