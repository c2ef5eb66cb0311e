package copystore

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/leaseholddb/leasehold/coord"
)

// A Ref names one copy of a tenant.
type Ref struct {
	Epoch coord.Epoch `json:"epoch"` // of the owner that published it
	Seq   uint64      `json:"seq"`   // counts the owner's attempts, from 1
}

// String writes the ref as it stands in object names, below the tenant's prefix
// and without an extension.
func (r Ref) String() string { return fmt.Sprintf("%s/snap-%06d", r.Epoch, r.Seq) }

// Before reports whether r was published before other, if both are of one
// lineage.
func (r Ref) Before(other Ref) bool { return compareRefs(r, other) < 0 }

func compareRefs(a, b Ref) int {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Seq, b.Seq))
}

func (r Ref) validate() error {
	if r.Epoch == 0 || r.Seq == 0 {
		return fmt.Errorf("epoch and seq of a copy start at 1, not %d and %d", r.Epoch, r.Seq)
	}
	return nil
}

const (
	originBase  = "origin.json"
	snapPrefix  = "snap-"
	imageExt    = ".db"
	manifestExt = ".json"

	// A greater seq is none of ours, and the next one of it could not be counted.
	maxSeq = 1 << 62
)

// The slash at the end keeps a tenant apart from one whose id starts the same.
func tenantPrefix(key coord.Key) string               { return key.String() + "/" }
func epochPrefix(key coord.Key, e coord.Epoch) string { return tenantPrefix(key) + e.String() + "/" }
func originName(key coord.Key, e coord.Epoch) string  { return epochPrefix(key, e) + originBase }
func imageName(key coord.Key, ref Ref) string         { return tenantPrefix(key) + ref.String() + imageExt }
func manifestName(key coord.Key, ref Ref) string {
	return tenantPrefix(key) + ref.String() + manifestExt
}

type objectKind int

// In the order in which the objects of a copy are deleted: what has lost its
// manifest is not a copy any more.
const (
	kindManifest objectKind = iota
	kindImage
	kindOrigin
	kindForeign // lies in an epoch's prefix but is none of ours
)

// An object is a listed name of a tenant, taken apart.
type object struct {
	name string
	kind objectKind
	ref  Ref // Seq is 0 for origins and foreign objects
}

// parseObject takes apart the name of an object of key. It reports false for
// names outside the tenant's epochs. A number spelled otherwise than we spell it
// makes the object foreign, so that no two names mean the same copy.
func parseObject(key coord.Key, name string) (object, bool) {
	rest, ok := strings.CutPrefix(name, tenantPrefix(key))
	if !ok {
		return object{}, false
	}
	dir, base, ok := strings.Cut(rest, "/")
	if !ok {
		return object{}, false
	}
	epoch, err := coord.ParseEpoch(dir)
	if err != nil {
		return object{}, false
	}
	o := object{name: name, kind: kindForeign, ref: Ref{Epoch: epoch}}
	if base == originBase {
		o.kind = kindOrigin
		return o, true
	}
	if ref, ok := parseSnap(epoch, base, manifestExt); ok {
		o.kind, o.ref = kindManifest, ref
	} else if ref, ok := parseSnap(epoch, base, imageExt); ok {
		o.kind, o.ref = kindImage, ref
	}
	return o, true
}

func parseSnap(epoch coord.Epoch, base, ext string) (Ref, bool) {
	digits := strings.TrimSuffix(strings.TrimPrefix(base, snapPrefix), ext)
	seq, err := strconv.ParseUint(digits, 10, 64)
	ref := Ref{Epoch: epoch, Seq: seq}
	return ref, err == nil && seq > 0 && seq <= maxSeq && ref.String()+ext == epoch.String()+"/"+base
}
