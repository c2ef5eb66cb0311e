package etcdlease

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leaseholddb/leasehold/coord"
)

// A layout builds etcd keys. Only validated ids reach it.
type layout struct{ prefix string }

func (l layout) epoch(k coord.Key) string { return l.epochs() + k.String() }
func (l layout) owner(k coord.Key) string { return l.prefix + "owner/" + k.String() }
func (l layout) floor(k coord.Key) string { return l.prefix + "floor/" + k.String() }
func (l layout) void(nonce string) string { return l.prefix + "void/" + nonce }
func (l layout) replica(id string) string { return l.replicas() + id }
func (l layout) wants() string            { return l.prefix + "want/" }
func (l layout) want(k coord.Key, asker string) string {
	return l.wants() + k.String() + "/" + asker
}
func (l layout) copies() string   { return l.prefix + "copies" }
func (l layout) cluster() string  { return l.prefix + "cluster" }
func (l layout) released() string { return l.prefix + "released" }
func (l layout) epochs() string   { return l.prefix + "epoch/" }
func (l layout) replicas() string { return l.prefix + "replica/" }
func (l layout) keyOf(epochKey []byte) string {
	return strings.TrimPrefix(string(epochKey), l.epochs())
}

// A grantValue is the value of epoch/K and of owner/K.
type grantValue struct {
	Owner     string `json:"owner"`
	Nonce     string `json:"nonce"` // of the attempt that made the grant
	Lease     string `json:"lease"` // etcd's lease id in hex, as etcdctl prints it
	TTL       int64  `json:"ttl_ms"`
	Address   string `json:"address,omitempty"`
	GrantedAt int64  `json:"granted_at_ms"` // the owner's calendar time, for people
	// The etcd that the owner asked: its cluster id in hex, and the revision it was
	// known to have reached. They outlive the prefix's own note of the cluster.
	Cluster string `json:"cluster,omitempty"`
	Reached int64  `json:"reached,omitempty"`
}

func (v grantValue) ttl() time.Duration { return time.Duration(v.TTL) * time.Millisecond }

func (v grantValue) encode() string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("etcdlease: a struct of strings and integers did not encode: " + err.Error())
	}
	return string(raw)
}

func clusterHex(id uint64) string { return strconv.FormatUint(id, 16) }

func leaseHex(id clientv3.LeaseID) string { return strconv.FormatInt(int64(id), 16) }

// A floorValue is the value of floor/K.
type floorValue struct {
	Forgotten coord.Epoch `json:"forgotten"`
	Base      coord.Epoch `json:"base,omitempty"`   // added to the version of epoch/K
	Raised    coord.Epoch `json:"raised,omitempty"` // what an operator last raised the epoch to
	At        int64       `json:"at_ms,omitempty"`  // when it was last forgotten, on the owner's calendar
}

func (v floorValue) encode() string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("etcdlease: a struct of integers did not encode: " + err.Error())
	}
	return string(raw)
}

// A snapshot is what etcd has for one key at one revision.
type snapshot struct {
	epoch    *mvccpb.KeyValue // nil if no grant was ever made
	owner    *mvccpb.KeyValue // nil if the lease is not held
	floorRev int64            // mod revision of floor/K, 0 if absent
	value    grantValue       // of epoch/K
	floor    floorValue
}

func decode(epoch, owner, floor *mvccpb.KeyValue) (snapshot, error) {
	s := snapshot{epoch: epoch, owner: owner}
	if epoch != nil {
		if err := json.Unmarshal(epoch.Value, &s.value); err != nil {
			return snapshot{}, fmt.Errorf("etcdlease: the value of %s: %w", epoch.Key, err)
		}
	}
	if floor != nil {
		s.floorRev = floor.ModRevision
		if err := json.Unmarshal(floor.Value, &s.floor); err != nil {
			return snapshot{}, fmt.Errorf("etcdlease: the value of %s: %w", floor.Key, err)
		}
	}
	return s, nil
}

// epochNumber is the epoch of the latest grant.
func (s snapshot) epochNumber() coord.Epoch {
	if s.epoch == nil {
		return 0
	}
	return s.floor.Base + coord.Epoch(s.epoch.Version)
}

// revision identifies the tenure of the latest grant.
func (s snapshot) revision() int64 {
	if s.epoch == nil {
		return 0
	}
	return s.epoch.ModRevision
}

// live reports whether the latest grant is still held.
func (s snapshot) live() bool {
	return s.owner != nil && s.owner.CreateRevision == s.revision()
}

// is reports whether the latest grant is t's.
func (s snapshot) is(t coord.Tenure) bool {
	return s.epoch != nil && s.value.Owner == t.Owner && s.epochNumber() == t.Epoch
}

// tenure is the latest grant's, which is t's and held.
func (s snapshot) tenure(t coord.Tenure) *tenure {
	return &tenure{
		Tenure: t, revision: s.revision(), value: string(s.epoch.Value),
		mod: s.owner.ModRevision, floor: s.floor.Forgotten, raised: s.floor.Raised, least: s.value.ttl(),
	}
}

// grants reports whether the latest grant is the one that t is, and not one that an etcd
// restored from a backup made with the same epoch at the same revision.
func (s snapshot) grants(t *tenure) bool {
	return s.epoch != nil && s.revision() == t.revision && string(s.epoch.Value) == t.value
}

// record describes s. An owner key that belongs to no grant still blocks the
// key, so it counts as held.
func (s snapshot) record(key coord.Key, now time.Time) coord.Record {
	r := coord.Record{
		Key: key, Owner: s.value.Owner, Epoch: s.epochNumber(), Revision: coord.Revision(s.revision()),
		Held: s.owner != nil, ForgottenAt: s.floor.Forgotten, Address: s.value.Address,
		LeaseUntil: now.Add(s.value.ttl()),
	}
	if s.epoch != nil {
		r.GrantedAt = time.UnixMilli(s.value.GrantedAt)
	}
	if !r.Held {
		// The end itself is not recorded; it is past, and not before the first TTL
		// ran out unless the lease was released.
		r.LeaseUntil = time.UnixMilli(s.value.GrantedAt).Add(s.value.ttl())
		if r.LeaseUntil.After(now) {
			r.LeaseUntil = now
		}
	}
	return r
}
