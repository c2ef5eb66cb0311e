package etcdlease

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/leaseholddb/leasehold/coord"
)

// progressPause is how often an audit asks etcd whether it has been told
// everything.
const progressPause = 20 * time.Millisecond

// A releaseNote is the value of released. It is written in the transaction that
// removes an owner key on its owner's behalf, which tells that removal from the end
// of a lease.
type releaseNote struct {
	Key   coord.Key   `json:"key"`
	Owner string      `json:"owner"`
	Epoch coord.Epoch `json:"epoch"`
	At    int64       `json:"at_ms"`
}

func (s *Store) noteRelease(t coord.Tenure) clientv3.Op {
	raw, err := json.Marshal(releaseNote{Key: t.Key, Owner: t.Owner, Epoch: t.Epoch, At: s.clock.Wall().UnixMilli()})
	if err != nil {
		panic("etcdlease: a struct of strings and integers did not encode: " + err.Error())
	}
	return clientv3.OpPut(s.keys.released(), string(raw))
}

// removeNoted removes an owner key in its owner's name. Without space in etcd it
// goes without a note.
func (s *Store) removeNoted(ctx context.Context, t coord.Tenure, cmps []clientv3.Cmp, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	remove := clientv3.OpDelete(s.keys.owner(t.Key))
	resp, err := s.txn(ctx, cmps, []clientv3.Op{remove, s.noteRelease(t)}, otherwise)
	if errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace) {
		return s.txn(ctx, cmps, []clientv3.Op{remove}, otherwise)
	}
	return resp, err
}

// Audit implements [coord.Auditor] from etcd's own history, so it goes back to
// etcd's latest compaction. Renewals write nothing and have no entry, except
// one that moved a tenure to another etcd lease. A release made while etcd's
// space was used up has none either.
func (s *Store) Audit(ctx context.Context, key coord.Key) ([]coord.AuditEntry, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	if err := s.checkOpen(); err != nil {
		return nil, fail(ctx, "audit", key, err)
	}
	trail, err := s.audit(ctx, key)
	return trail, fail(ctx, "audit", key, err)
}

func (s *Store) audit(ctx context.Context, key coord.Key) ([]coord.AuditEntry, error) {
	resp, err := s.txn(ctx, nil, s.readAll(key), nil)
	if err != nil {
		return nil, err
	}
	snap, err := decodeAll(resp.Responses)
	if err != nil || snap.epoch == nil {
		return nil, err
	}
	from := snap.epoch.CreateRevision
	for range maxTries {
		if from > resp.Header.Revision {
			return nil, nil // all of it has been compacted
		}
		trail, compacted, err := s.auditFrom(ctx, key, snap, from)
		if err != nil || compacted == 0 {
			return trail, err
		}
		from = compacted + 1
	}
	return nil, errContended
}

// auditFrom returns what happened from a revision to snap, or the revision up to
// which etcd's history has been compacted.
func (s *Store) auditFrom(ctx context.Context, key coord.Key, snap snapshot, from int64) (_ []coord.AuditEntry, compacted int64, err error) {
	var events []*clientv3.Event
	for _, h := range []history{
		{s.keys.epoch(key), func(e *clientv3.Event) bool { return e.Kv.ModRevision >= snap.revision() }},
		{s.keys.owner(key), func(e *clientv3.Event) bool { return ownerSettled(snap, e) }},
		{s.keys.floor(key), func(e *clientv3.Event) bool { return e.Kv.ModRevision >= snap.floorRev }},
	} {
		if h.key == s.keys.floor(key) && snap.floorRev == 0 {
			continue
		}
		some, compacted, err := s.events(ctx, h, from, snap.revision())
		if err != nil || compacted != 0 {
			return nil, compacted, err
		}
		events = append(events, some...)
	}
	slices.SortStableFunc(events, func(x, y *clientv3.Event) int { return cmp.Compare(x.Kv.ModRevision, y.Kv.ModRevision) })
	a := auditor{store: s, key: key}
	if a.at, err = s.readAt(ctx, key, from-1); err != nil {
		return nil, 0, err
	}
	for _, e := range events {
		if err := a.apply(ctx, e); err != nil {
			return nil, 0, err
		}
	}
	return a.trail, 0, nil
}

// readAt returns what etcd had of a key's grants at a revision.
func (s *Store) readAt(ctx context.Context, key coord.Key, revision int64) (snapshot, error) {
	at := clientv3.WithRev(revision)
	resp, err := s.txn(ctx, nil, []clientv3.Op{clientv3.OpGet(s.keys.epoch(key), at), clientv3.OpGet(s.keys.floor(key), at)}, nil)
	if err != nil {
		return snapshot{}, err
	}
	return decode(only(resp.Responses[0]), nil, only(resp.Responses[1]))
}

// ownerSettled reports whether e made the owner key what it is in snap.
func ownerSettled(snap snapshot, e *clientv3.Event) bool {
	if snap.owner != nil {
		return e.Kv.ModRevision >= snap.owner.ModRevision
	}
	return e.Type == clientv3.EventTypeDelete && e.Kv.ModRevision > snap.revision()
}

// A history is a key of etcd, and how to tell the last event that counts.
type history struct {
	key  string
	last func(*clientv3.Event) bool
}

// events returns what happened to a key from a revision on, until the last event
// or, where that has been compacted away, until etcd says that there is no more.
func (s *Store) events(ctx context.Context, h history, from, grant int64) (events []*clientv3.Event, compacted int64, _ error) {
	// etcd's word on progress goes to everyone on a stream, whoever asked, so each
	// history has a stream of its own: the client makes one for each metadata.
	ctx = metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(ctx), "leasehold-history", rand.Text())
	ctx, cancel := s.request(ctx)
	defer cancel()
	watch := s.client.Watch(ctx, h.key, clientv3.WithRev(from))
	ticker := time.NewTicker(progressPause)
	defer ticker.Stop()
	for {
		select {
		case resp, ok := <-watch:
			switch {
			case !ok:
				return nil, 0, cmp.Or(ctx.Err(), errNoAnswer)
			case resp.CompactRevision > 0:
				return nil, resp.CompactRevision, nil
			case resp.Err() != nil:
				return nil, 0, resp.Err()
			}
			for _, e := range resp.Events {
				events = append(events, e)
				if h.last(e) {
					return events, 0, nil
				}
			}
			// Without a compaction since the grant the last event is sure to come.
			if resp.IsProgressNotify() && from > grant {
				return events, 0, nil
			}
		case <-ticker.C:
			if err := s.client.RequestProgress(ctx); err != nil {
				return nil, 0, err
			}
		}
	}
}

// An auditor turns the history of one key into entries.
type auditor struct {
	store *Store
	key   coord.Key
	at    snapshot // as of the event before
	trail []coord.AuditEntry
}

func (a *auditor) apply(ctx context.Context, e *clientv3.Event) error {
	switch string(e.Kv.Key) {
	case a.store.keys.epoch(a.key):
		return a.granted(e.Kv)
	case a.store.keys.floor(a.key):
		return a.floored(e.Kv)
	}
	if e.Type == clientv3.EventTypeDelete {
		return a.removed(ctx, e.Kv.ModRevision)
	}
	if e.IsModify() {
		return a.moved(e.Kv)
	}
	return nil // the other half of a grant
}

func (a *auditor) add(op coord.AuditOp, at int64) {
	a.trail = append(a.trail, coord.AuditEntry{Op: op, Owner: a.at.value.Owner, Epoch: a.at.epochNumber(), At: time.UnixMilli(at)})
}

func (a *auditor) granted(kv *mvccpb.KeyValue) error {
	next, err := decode(kv, nil, nil)
	if err != nil {
		return err
	}
	a.at.epoch, a.at.value = next.epoch, next.value
	a.add(coord.AuditAcquire, next.value.GrantedAt)
	return nil
}

func (a *auditor) floored(kv *mvccpb.KeyValue) error {
	next, err := decode(nil, nil, kv)
	if err != nil {
		return err
	}
	if next.floor.Forgotten > a.at.floor.Forgotten {
		a.add(coord.AuditForget, next.floor.At)
	}
	a.at.floor = next.floor
	return nil
}

func (a *auditor) moved(kv *mvccpb.KeyValue) error {
	var v grantValue
	if err := json.Unmarshal(kv.Value, &v); err != nil {
		return err
	}
	a.add(coord.AuditRenew, v.GrantedAt)
	return nil
}

// removed looks whether the owner key was removed by its owner.
func (a *auditor) removed(ctx context.Context, revision int64) error {
	ctx, cancel := a.store.request(ctx)
	defer cancel()
	resp, err := a.store.client.Get(ctx, a.store.keys.released(), clientv3.WithRev(revision))
	if err != nil || len(resp.Kvs) == 0 || resp.Kvs[0].ModRevision != revision {
		return err
	}
	var note releaseNote
	if err := json.Unmarshal(resp.Kvs[0].Value, &note); err != nil || note.Key != a.key {
		return err
	}
	a.trail = append(a.trail, coord.AuditEntry{Op: coord.AuditRelease, Owner: note.Owner, Epoch: note.Epoch, At: time.UnixMilli(note.At)})
	return nil
}
