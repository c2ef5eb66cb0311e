package sim

import (
	"maps"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/sim/history"
)

// A leaseServer is the linearizable half of the lease store, on the true time: what etcd
// is to package etcdlease. Keys hang on sessions, as owner keys hang on etcd leases. All of
// it runs on the scheduler's goroutine.
type leaseServer struct {
	w     *world
	state leaseState
	past  []leaseState // after every change, for a rollback

	wishes []wish // in the order in which they were made
	wished int    // how many ever were
}

// A leaseState is what a backup holds.
type leaseState struct {
	at       time.Duration // of the change that led to it
	revision coord.Revision
	keys     map[coord.Key]leaseRecord
	sessions map[string]session
	void     map[string]bool // nonces that must not be applied any more
}

type leaseRecord struct {
	owner    string // of the latest grant
	epoch    coord.Epoch
	revision coord.Revision
	nonce    string // of the acquisition
	session  string // empty once the owner key is gone
	floor    coord.Epoch
	raised   coord.Epoch // by an operator, the last time
}

type session struct {
	ttl   time.Duration
	until time.Duration
	gone  bool
}

func newLeaseServer(w *world) *leaseServer {
	s := &leaseServer{w: w}
	s.state = leaseState{keys: make(map[coord.Key]leaseRecord), sessions: make(map[string]session), void: make(map[string]bool)}
	s.changed()
	return s
}

// changed is the end of every change.
func (s *leaseServer) changed() {
	s.state.at = s.w.now()
	s.past = append(s.past, s.state.clone())
	if len(s.past) > 256 {
		s.past = s.past[len(s.past)-128:]
	}
}

func (st leaseState) clone() leaseState {
	st.keys, st.sessions, st.void = maps.Clone(st.keys), maps.Clone(st.sessions), maps.Clone(st.void)
	return st
}

// alive reports whether a session is there, and ends it if its time has come.
func (s *leaseServer) alive(id string) bool {
	se, known := s.state.sessions[id]
	if known && !se.gone && s.w.now() >= se.until {
		se.gone = true
		s.state.sessions[id] = se
	}
	return known && !se.gone
}

func (s *leaseServer) held(r leaseRecord) bool { return r.session != "" && s.alive(r.session) }

// holds reports whether a tenure stands at this moment.
func (s *leaseServer) holds(t coord.Tenure) bool {
	r := s.state.keys[t.Key]
	return r.owner == t.Owner && r.epoch == t.Epoch && s.held(r)
}

func (s *leaseServer) record(key coord.Key) (coord.Record, bool) {
	r, known := s.state.keys[key]
	if !known || r.epoch == 0 {
		return coord.Record{}, false
	}
	return coord.Record{Key: key, Owner: r.owner, Epoch: r.epoch, Revision: r.revision, Held: s.held(r), ForgottenAt: r.floor}, true
}

// An acquired is the answer to an acquisition.
type acquired struct {
	grant    coord.Grant
	held     *coord.LeaseHeldError
	gone     bool // the session is over
	void     bool
	revision coord.Revision // of the whole store
}

// acquire is one transaction. A session that was never there begins with it; one that is
// there is not prolonged.
func (s *leaseServer) acquire(nonce string, key coord.Key, owner, id string, ttl time.Duration) (a acquired) {
	defer func() { a.revision = s.state.revision }()
	r := s.state.keys[key]
	_, known := s.state.sessions[id]
	switch {
	case s.state.void[nonce]:
		return acquired{void: true}
	case known && !s.alive(id):
		return acquired{gone: true}
	case s.held(r):
		record, _ := s.record(key)
		return acquired{held: &coord.LeaseHeldError{Record: record}}
	}
	if !known {
		s.state.sessions[id] = session{ttl: ttl, until: s.w.now() + ttl}
	}
	s.state.revision++
	r = leaseRecord{owner: owner, epoch: r.epoch + 1, revision: s.state.revision, nonce: nonce, session: id, floor: r.floor, raised: r.raised}
	s.state.keys[key] = r
	s.changed()
	s.w.truth.granted(key, owner, r.epoch)
	return acquired{grant: s.grantOf(key, r)}
}

func (s *leaseServer) grantOf(key coord.Key, r leaseRecord) coord.Grant {
	return coord.Grant{
		Tenure:   coord.Tenure{Key: key, Owner: r.owner, Epoch: r.epoch},
		Revision: r.revision, TTL: s.state.sessions[r.session].ttl, ForgottenAt: r.floor, RaisedTo: r.raised,
	}
}

// settle decides what became of an acquisition: if it was not applied, it cannot be any
// more. With drop, a grant is taken back.
func (s *leaseServer) settle(nonce string, key coord.Key, drop bool) (a acquired) {
	r := s.state.keys[key]
	if r.nonce != nonce {
		s.state.void[nonce] = true
		s.changed()
		return acquired{void: true, revision: s.state.revision}
	}
	if drop || !s.held(r) {
		s.remove(key, nonce)
		return acquired{void: true, revision: s.state.revision}
	}
	return acquired{grant: s.grantOf(key, r), revision: s.state.revision}
}

// A kept is the answer to a keepalive.
type kept struct {
	gone     bool
	ttl      time.Duration
	keys     map[coord.Key]coord.Epoch // on the session
	revision coord.Revision
}

func (s *leaseServer) keepAlive(id string) kept {
	if !s.alive(id) {
		return kept{gone: true, revision: s.state.revision}
	}
	se := s.state.sessions[id]
	se.until = s.w.now() + se.ttl
	s.state.sessions[id] = se
	k := kept{ttl: se.ttl, keys: make(map[coord.Key]coord.Epoch), revision: s.state.revision}
	for key, r := range s.state.keys {
		if r.session == id {
			k.keys[key] = r.epoch
		}
	}
	s.changed()
	return k
}

// remove ends the tenure that an acquisition was granted, if it stands.
func (s *leaseServer) remove(key coord.Key, nonce string) {
	r := s.state.keys[key]
	if r.nonce != nonce || r.session == "" {
		return
	}
	if s.held(r) {
		s.w.record("", history.Event{Kind: history.End, Tenant: key.String(), Epoch: r.epoch, Text: "released"})
	}
	r.session = ""
	s.state.keys[key] = r
	s.state.revision++
	s.changed()
}

// forget raises the floor, for a tenure that stands.
func (s *leaseServer) forget(t coord.Tenure) (floor coord.Epoch, ok bool) {
	if !s.holds(t) {
		return 0, false
	}
	r := s.state.keys[t.Key]
	r.floor = max(r.floor, r.epoch)
	s.state.keys[t.Key] = r
	s.state.revision++
	s.changed()
	s.w.truth.forgotten(t.Key, r.floor)
	return r.floor, true
}

// raise is what an operator does after a rollback.
func (s *leaseServer) raise(key coord.Key, above coord.Epoch) {
	r := s.state.keys[key]
	r.epoch, r.raised = max(r.epoch, above), max(r.raised, above)
	s.state.keys[key] = r
	s.state.revision++
	s.changed()
}

// rollBack puts a backup of some time ago in the store's place. Sessions that it holds go on
// as if nothing had happened.
func (s *leaseServer) rollBack(ago time.Duration) {
	then := s.w.now() - ago
	for _, st := range s.past {
		if st.at > then {
			break
		}
		s.state = st.clone()
	}
	s.past = nil
	s.changed()
}
