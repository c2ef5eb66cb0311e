package etcdlease_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/etcdlease"
)

// writes reports whether req is a transaction that puts or deletes a key holding
// part in its first branch.
func writes(req any, part string) bool {
	txn, ok := req.(*pb.TxnRequest)
	if !ok {
		return false
	}
	for _, op := range txn.Success {
		if strings.Contains(string(op.GetRequestPut().GetKey()), part) || strings.Contains(string(op.GetRequestDeleteRange().GetKey()), part) {
			return true
		}
	}
	return false
}

// once makes a hook that injects f into the first transaction that writes part,
// after it has called then, which may be nil.
func once(f fault, part string, then func(*pb.TxnRequest)) func(string, any) fault {
	var done atomic.Bool
	return func(_ string, req any) fault {
		if !writes(req, part) || !done.CompareAndSwap(false, true) {
			return noFault
		}
		if then != nil {
			then(req.(*pb.TxnRequest))
		}
		return f
	}
}

// Trap 16: the reply of an acquisition is lost; its caller gets the grant, at the
// one epoch there was, and nothing is left over.
func TestAcquireReplyLost(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s := open(t, w)
	w.set(func(w *wire) {
		w.unary = once(loseReply, "epoch/", nil)
	})
	g := acquire(t, s, key(t, 1), "a", ttl)
	if r := read(t, s, key(t, 1)); g.Epoch != 1 || !r.Held || r.Epoch != 1 || r.Revision != g.Revision {
		t.Errorf("granted %+v, recorded %+v", g, r)
	}
	if err := renewErr(t, s, g.Tenure, ttl); err != nil {
		t.Error(err)
	}
	if n := countKeys(t, etcd(t), prefix(t)+"void/"); n != 0 {
		t.Errorf("%d void marks are left", n)
	}
}

// Trap 16: nobody can be asked what became of it, and the caller gives up. The
// owner key does not live on with its neighbours, and the replica is not locked
// out by itself.
func TestAcquireAbandoned(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		name := map[bool]string{false: "JanitorRemovesIt", true: "SameReplicaTriesAgain"}[again]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &wire{}
			s, other := open(t, w, timeout(impatient)), open(t, nil)
			g := acquire(t, s, key(t, 1), "a", ttl)
			stop := keepRenewing(t, s, g.Tenure, ttl)
			defer stop()
			var sent, healed atomic.Bool
			w.set(func(w *wire) {
				w.unary = func(_ string, req any) fault {
					switch {
					case healed.Load():
						return noFault
					case writes(req, "epoch/"):
						sent.Store(true)
						return loseReply
					case sent.Load() && isTxn(req):
						return loseRequest
					}
					return noFault
				}
			})
			_, err := s.Acquire(t.Context(), key(t, 2), "a", ttl)
			wantCode(t, err, coord.CodeLeaseStoreUnavailable)
			if r := read(t, other, key(t, 2)); !r.Held || r.Epoch != 1 {
				t.Fatalf("recorded %+v", r)
			}
			healed.Store(true)
			if again {
				if g := acquire(t, s, key(t, 2), "a", ttl); g.Epoch != 2 {
					t.Errorf("granted %+v", g)
				}
				return
			}
			released(t, other, key(t, 2), soon)
			etcdlease.WaitSettled(t.Context(), s)
			if tenures, slots := etcdlease.Tenures(s); tenures != 1 || slots != 1 {
				t.Errorf("%d tenures and %d slots are left", tenures, slots)
			}
		})
	}
}

func isTxn(req any) bool { _, ok := req.(*pb.TxnRequest); return ok }

// An acquisition that is delayed on its way, and given up meanwhile, grants
// nothing when it arrives.
func TestAcquireArrivesLate(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s, c := open(t, w), etcd(t)
	var late *pb.TxnRequest
	w.set(func(w *wire) {
		w.unary = once(loseRequest, "epoch/", func(req *pb.TxnRequest) { late = req })
	})
	_, err := s.Acquire(t.Context(), key(t, 1), "a", ttl)
	wantCode(t, err, coord.CodeLeaseStoreUnavailable)
	resp, err := pb.NewKVClient(c.ActiveConnection()).Txn(t.Context(), late)
	if err != nil || resp.Succeeded {
		t.Fatalf("the late acquisition was applied: %v, %v", resp, err)
	}
	if g := acquire(t, s, key(t, 1), "a", ttl); g.Epoch != 1 {
		t.Errorf("granted %+v", g)
	}
}

// A caller that gives up while its acquisition runs leaves nothing held.
func TestAcquireCancelled(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s, other := open(t, w), open(t, nil)
	acquire(t, s, key(t, 1), "a", ttl)
	ctx, cancel := context.WithCancel(t.Context())
	w.set(func(w *wire) {
		w.unary = once(loseReply, "epoch/", func(*pb.TxnRequest) { cancel() })
	})
	_, err := s.Acquire(ctx, key(t, 2), "a", ttl)
	wantCode(t, err, coord.CodeLeaseStoreUnavailable)
	if !strings.Contains(err.Error(), "canceled") {
		t.Errorf("the cause is not in %v", err)
	}
	released(t, other, key(t, 2), soon)
}

// Trap 15: a release whose reply was lost is retried after the same replica
// acquired again; the newer tenure survives.
func TestReleaseRetriedTooLate(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s := open(t, w)
	first := acquire(t, s, key(t, 1), "a", ttl)
	w.set(func(w *wire) {
		w.unary = once(loseReply, "owner/", nil)
	})
	wantCode(t, s.Release(t.Context(), first.Tenure), coord.CodeLeaseStoreUnavailable)
	second := acquire(t, s, key(t, 1), "a", ttl)
	wantCode(t, s.Release(t.Context(), first.Tenure), coord.CodeLeaseLost)
	if r := read(t, s, key(t, 1)); !r.Held || r.Epoch != 2 {
		t.Errorf("recorded %+v", r)
	}
	if err := renewErr(t, s, second.Tenure, ttl); err != nil {
		t.Error(err)
	}
}

// Trap 15, on the wire: the release itself arrives late.
func TestReleaseArrivesLate(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s, c := open(t, w), etcd(t)
	first := acquire(t, s, key(t, 1), "a", ttl)
	var late *pb.TxnRequest
	w.set(func(w *wire) {
		w.unary = once(loseRequest, "owner/", func(req *pb.TxnRequest) { late = req })
	})
	wantCode(t, s.Release(t.Context(), first.Tenure), coord.CodeLeaseStoreUnavailable)
	acquire(t, s, key(t, 1), "a", ttl)
	if resp, err := pb.NewKVClient(c.ActiveConnection()).Txn(t.Context(), late); err != nil || resp.Succeeded {
		t.Fatalf("the late release was applied: %v, %v", resp, err)
	}
}

// A release that never arrived is finished in the background, although the
// neighbours keep the shared lease alive.
func TestReleaseIsFinished(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s, other := open(t, w), open(t, nil)
	g, neighbour := acquire(t, s, key(t, 1), "a", ttl), acquire(t, s, key(t, 2), "a", ttl)
	stop := keepRenewing(t, s, neighbour.Tenure, ttl)
	defer stop()
	w.set(func(w *wire) {
		w.unary = once(loseRequest, "owner/", nil)
	})
	wantCode(t, s.Release(t.Context(), g.Tenure), coord.CodeLeaseStoreUnavailable)
	wantCode(t, renewErr(t, s, g.Tenure, ttl), coord.CodeLeaseLost)
	released(t, other, key(t, 1), soon)
	if err := s.Release(t.Context(), g.Tenure); err != nil {
		t.Errorf("release again: %v", err)
	}
}

// The reply of a forget is lost: what is written counts. The operator's base stays.
func TestForgetReplyLost(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s, c := open(t, w), etcd(t)
	floorKey := prefix(t) + "floor/" + key(t, 1).String()
	if _, err := c.Put(t.Context(), floorKey, `{"forgotten":0,"base":40}`); err != nil {
		t.Fatal(err)
	}
	g := acquire(t, s, key(t, 1), "a", ttl)
	if g.Epoch != 41 {
		t.Fatalf("granted %+v", g)
	}
	w.set(func(w *wire) {
		w.unary = once(loseReply, "floor/", nil)
	})
	if floor, err := s.MarkForgotten(t.Context(), g.Tenure); floor != 41 || err != nil {
		t.Fatalf("floor %d, %v", floor, err)
	}
	var value struct{ Forgotten, Base int }
	raw, _ := get(t, c, floorKey)
	if err := json.Unmarshal([]byte(raw), &value); err != nil || value.Forgotten != 41 || value.Base != 40 {
		t.Errorf("the floor is %s, %v", raw, err)
	}
	if r := read(t, s, key(t, 1)); r.Epoch != 41 || !r.Held {
		t.Errorf("recorded %+v", r)
	}
}

// A renewal for longer moves the key to another lease. Whether the move was
// applied or not, the next renewal finds the key, and a move that arrives late
// moves nothing.
func TestMoveUnclear(t *testing.T) {
	t.Parallel()
	for f, name := range map[fault]string{loseRequest: "Request", loseReply: "Reply"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &wire{}
			s, c := open(t, w), etcd(t)
			g := acquire(t, s, key(t, 1), "a", ttl)
			const longer = 2 * ttl
			var late *pb.TxnRequest
			w.set(func(w *wire) {
				w.unary = once(f, "owner/", func(req *pb.TxnRequest) { late = req })
			})
			wantCode(t, renewErr(t, s, g.Tenure, longer), coord.CodeLeaseStoreUnavailable)
			if _, err := s.Renew(t.Context(), g.Tenure, ttl); err != nil {
				t.Fatal(err)
			}
			if resp, err := pb.NewKVClient(c.ActiveConnection()).Txn(t.Context(), late); err != nil || resp.Succeeded {
				t.Fatalf("the late move was applied: %v, %v", resp, err)
			}
			if r, err := s.Renew(t.Context(), g.Tenure, longer); err != nil || r.TTL != longer {
				t.Fatalf("renewed as %+v, %v", r, err)
			}
			if tenures, slots := etcdlease.Tenures(s); tenures != 1 || slots != 1 {
				t.Errorf("%d tenures take %d slots", tenures, slots)
			}
			if err := s.Release(t.Context(), g.Tenure); err != nil {
				t.Error(err)
			}
		})
	}
}

// A blip of the keepalive stream costs a renewal nothing but a little time.
func TestRenewalRidesOutABlip(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s := open(t, w)
	g := acquire(t, s, key(t, 1), "a", ttl)
	var cuts atomic.Int32
	w.set(func(w *wire) {
		w.stream = func(_ context.Context, method string) error {
			if method == keepAliveMethod && cuts.Add(1) <= 2 {
				return errCut
			}
			return nil
		}
	})
	if err := renewErr(t, s, g.Tenure, ttl); err != nil {
		t.Error(err)
	}
}

// Trap 5: a stream that has gone silent is replaced in time for the same renewal.
func TestSilentStreamIsReplaced(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s := open(t, w, timeout(10*time.Second))
	g := acquire(t, s, key(t, 1), "a", ttl)
	if err := renewErr(t, s, g.Tenure, ttl); err != nil {
		t.Fatal(err)
	}
	var swallowed atomic.Bool
	w.set(func(w *wire) {
		w.swallow = func(method string) bool {
			return method == keepAliveMethod && swallowed.CompareAndSwap(false, true)
		}
	})
	if err := renewErr(t, s, g.Tenure, ttl); err != nil || !swallowed.Load() {
		t.Errorf("got %v", err)
	}
}

// A renewal that is overtaken by the release of its tenure grants nothing.
func TestRenewalOvertakenByRelease(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s := open(t, w)
	g := acquire(t, s, key(t, 1), "a", ttl)
	inFlight, answer := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(inFlight); <-answer })
	w.set(func(w *wire) {
		w.received = func(method string) {
			if method == keepAliveMethod {
				first()
			}
		}
	})
	done := make(chan error, 1)
	go func() {
		_, err := s.Renew(t.Context(), g.Tenure, ttl)
		done <- err
	}()
	<-inFlight
	if err := s.Release(t.Context(), g.Tenure); err != nil {
		t.Fatal(err)
	}
	acquire(t, s, key(t, 1), "a", 2*ttl)
	close(answer)
	wantCode(t, <-done, coord.CodeLeaseLost)
}

// Trap 11: a renewal that is never answered ends with an error in bounded time,
// and the next one is not held up by it.
func TestRenewalNeverAnswered(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s := open(t, w, timeout(impatient))
	g := acquire(t, s, key(t, 1), "a", ttl)
	for name, hang := range map[string]func(*wire){
		"Opening": func(w *wire) {
			w.stream = func(ctx context.Context, method string) error {
				if method != keepAliveMethod {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}
		},
		"Waiting": func(w *wire) { w.swallow = func(method string) bool { return method == keepAliveMethod } },
	} {
		w.set(hang)
		began := time.Now()
		wantCode(t, renewErr(t, s, g.Tenure, ttl), coord.CodeLeaseStoreUnavailable)
		if took := time.Since(began); took > 5*impatient {
			t.Errorf("%s: took %v", name, took)
		}
		w.set(func(w *wire) { w.stream, w.swallow = nil, nil })
	}
	if err := renewErr(t, s, g.Tenure, ttl); err != nil {
		t.Error(err)
	}
}

// A replica is not locked out by a tenure of its own that it could not release:
// acquiring ends it, without waiting for the janitor's next pass.
func TestAcquireAfterFailedRelease(t *testing.T) {
	t.Parallel()
	w := &wire{}
	s := open(t, w)
	g := acquire(t, s, key(t, 1), "a", ttl)
	twice := make(chan struct{})
	var losses atomic.Int32
	w.set(func(w *wire) {
		w.unary = func(_ string, req any) fault {
			if !writes(req, "owner/") || losses.Load() >= 2 {
				return noFault
			}
			if losses.Add(1) == 2 {
				close(twice)
			}
			return loseRequest
		}
	})
	wantCode(t, s.Release(t.Context(), g.Tenure), coord.CodeLeaseStoreUnavailable)
	<-twice // the janitor tried, and pauses
	if g := acquire(t, s, key(t, 1), "a", ttl); g.Epoch != 2 {
		t.Errorf("granted %+v", g)
	}
}
