package history_test

import (
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/sim/history"
)

const tenant = "acme/t-1"

// A script builds a history, a millisecond for each event.
type script struct {
	*history.Recorder
	now time.Duration
}

func newScript() *script {
	s := &script{}
	s.Recorder = history.NewRecorder(func() time.Duration { s.now += time.Millisecond; return s.now })
	return s
}

func (s *script) begin(call history.Call, value string) history.Event {
	return s.Invoke(history.Event{Tenant: tenant, Client: 1, Call: call, Value: value})
}

func (s *script) ok(began history.Event, epoch coord.Epoch, position uint64, values ...string) {
	s.Return(began, history.Event{Outcome: history.OK, Epoch: epoch, Position: position, Values: values})
}

func (s *script) ends(began history.Event, outcome history.Outcome) {
	s.Return(began, history.Event{Outcome: outcome, Code: "FENCED"})
}

func (s *script) append(epoch coord.Epoch, position uint64, value string) {
	s.ok(s.begin(history.Append, value), epoch, position)
}

func (s *script) read(epoch coord.Epoch, values ...string) {
	s.ok(s.begin(history.Read, ""), epoch, 0, values...)
}

func (s *script) set(epoch coord.Epoch, value string) {
	s.ok(s.begin(history.Set, value), epoch, 0)
}

func (s *script) get(epoch coord.Epoch, value ...string) {
	s.ok(s.begin(history.Get, ""), epoch, 0, value...)
}

func (s *script) call(call history.Call, epoch coord.Epoch) { s.ok(s.begin(call, ""), epoch, 0) }

func (s *script) grant(epoch coord.Epoch, replica string) {
	s.Record(history.Event{Kind: history.Grant, Tenant: tenant, Epoch: epoch, Replica: replica})
}

func (s *script) end(epoch coord.Epoch, flushed bool) {
	s.Record(history.Event{Kind: history.End, Tenant: tenant, Epoch: epoch, Flushed: flushed})
}

func (s *script) commit(epoch coord.Epoch, value string) {
	s.Record(history.Event{Kind: history.Commit, Tenant: tenant, Epoch: epoch, Value: value})
}
