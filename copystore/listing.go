package copystore

import (
	"cmp"
	"slices"

	"github.com/leaseholddb/leasehold/coord"
)

// A listing is what the store had of one tenant, taken apart.
type listing struct {
	objects   []object // by epoch, kind and seq
	origins   map[coord.Epoch]bool
	manifests map[coord.Epoch][]uint64 // seqs, ascending
	images    map[Ref]bool

	rolledBack bool // the tenant has a mark, see rollback.go
}

func newListing() *listing {
	return &listing{
		origins:   make(map[coord.Epoch]bool),
		manifests: make(map[coord.Epoch][]uint64),
		images:    make(map[Ref]bool),
	}
}

func (l *listing) add(o object) {
	l.objects = append(l.objects, o)
	switch o.kind {
	case kindOrigin:
		l.origins[o.ref.Epoch] = true
	case kindManifest:
		l.manifests[o.ref.Epoch] = append(l.manifests[o.ref.Epoch], o.ref.Seq)
	case kindImage:
		l.images[o.ref] = true
	}
}

func (l *listing) sort() {
	slices.SortFunc(l.objects, func(a, b object) int {
		return cmp.Or(cmp.Compare(a.ref.Epoch, b.ref.Epoch), cmp.Compare(a.kind, b.kind),
			cmp.Compare(a.ref.Seq, b.ref.Seq), cmp.Compare(a.name, b.name))
	})
	for _, seqs := range l.manifests {
		slices.Sort(seqs)
	}
}

// newest returns the newest epoch that anything of ours is of, 0 if there is
// none.
func (l *listing) newest() coord.Epoch {
	for _, o := range slices.Backward(l.objects) {
		if o.kind != kindForeign {
			return o.ref.Epoch
		}
	}
	return 0
}

// newestClaimed returns the newest epoch that has an origin or a manifest, 0 if
// there is none. Nobody commits a copy before its claim, so a manifest without an
// origin means that the store lost the origin, not that there was none.
func (l *listing) newestClaimed() coord.Epoch {
	var newest coord.Epoch
	for e := range l.origins {
		newest = max(newest, e)
	}
	for e := range l.manifests {
		newest = max(newest, e)
	}
	return newest
}

// newestSeq returns the highest seq that any object of the epoch has, 0 if none
// has one.
func (l *listing) newestSeq(epoch coord.Epoch) uint64 {
	var newest uint64
	for _, o := range l.objects {
		if o.ref.Epoch == epoch {
			newest = max(newest, o.ref.Seq)
		}
	}
	return newest
}

// complete reports whether both parts of a copy were listed.
func (l *listing) complete(ref Ref) bool {
	_, found := slices.BinarySearch(l.manifests[ref.Epoch], ref.Seq)
	return found && l.images[ref]
}

// epochs returns those that anything is of, newest first.
func (l *listing) epochs() []coord.Epoch {
	var epochs []coord.Epoch
	for _, o := range slices.Backward(l.objects) {
		if len(epochs) == 0 || epochs[len(epochs)-1] != o.ref.Epoch {
			epochs = append(epochs, o.ref.Epoch)
		}
	}
	return epochs
}

// orphans returns the names of an epoch's objects that belong to no copy.
func (l *listing) orphans(epoch coord.Epoch) []string {
	var names []string
	for _, o := range l.objects {
		_, committed := slices.BinarySearch(l.manifests[epoch], o.ref.Seq)
		if o.ref.Epoch == epoch && (o.kind == kindForeign || o.kind == kindImage && !committed) {
			names = append(names, o.name)
		}
	}
	return names
}
