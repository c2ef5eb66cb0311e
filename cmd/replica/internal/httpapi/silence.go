package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

const (
	// ownerPatience is how long an owner may take over a request before it is asked
	// whether it answers at all.
	ownerPatience = time.Second
	// ownerProbeTimeout bounds that question, which a replica answers without doing
	// anything for it.
	ownerProbeTimeout = 2 * time.Second
	// silenceMemory is for how long an owner that did not answer is sent no requests; each
	// question that it leaves unanswered begins it anew.
	silenceMemory = 10 * time.Second
	// reprobeEvery is how often the requests that it is not sent make it be asked again.
	reprobeEvery = time.Second
	// maxSilent bounds how many silent owners are remembered.
	maxSilent = 1000
)

// errOwnerSilent ends a forward whose owner does not even say that it lives.
var errOwnerSilent = errors.New("the owner does not answer /livez either")

// A vigil tells an owner that takes long from one that is stopped or cut off. Both keep
// their connections open, but only the first still answers /livez.
type vigil struct {
	transport http.RoundTripper
	patience  time.Duration
	timeout   time.Duration

	life   context.Context // of the questions
	end    context.CancelFunc
	asking sync.WaitGroup

	mu struct {
		sync.Mutex
		closed    bool
		questions map[string]*question // under way, by owner
		silent    map[string]time.Time // when it was found to be, by owner
	}
}

// A question is whether an owner answers.
type question struct {
	done   chan struct{}
	silent bool // set before done is closed
}

func newVigil(transport http.RoundTripper) *vigil {
	v := &vigil{transport: transport, patience: ownerPatience, timeout: ownerProbeTimeout}
	v.life, v.end = context.WithCancel(context.Background())
	v.mu.questions = make(map[string]*question)
	v.mu.silent = make(map[string]time.Time)
	return v
}

// close ends the questions that are under way.
func (v *vigil) close() {
	v.mu.Lock()
	v.mu.closed = true
	v.mu.Unlock()
	v.end()
	v.asking.Wait()
}

// attend ends a request that waits for its owner, by cancel, once the owner turns out to
// be silent. It does so until stop is called.
func (v *vigil) attend(ctx context.Context, cancel context.CancelCauseFunc, owner coord.Record) (stop func()) {
	ctx, over := context.WithCancel(ctx)
	joined := make(chan struct{})
	timer := time.AfterFunc(v.patience, func() {
		defer close(joined)
		for ctx.Err() == nil {
			if v.isSilent(ctx, owner) {
				cancel(errOwnerSilent)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(v.patience):
			}
		}
	})
	return func() {
		over()
		if !timer.Stop() {
			<-joined
		}
	}
}

func (v *vigil) isSilent(ctx context.Context, owner coord.Record) bool {
	q := v.ask(owner)
	select {
	case <-q.done:
		return q.silent
	case <-ctx.Done():
		return false
	}
}

// ask joins the question that is under way, or puts it.
func (v *vigil) ask(owner coord.Record) *question {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.askLocked(owner)
}

func (v *vigil) askLocked(owner coord.Record) *question {
	if q := v.mu.questions[owner.Owner]; q != nil {
		return q
	}
	q := &question{done: make(chan struct{})}
	if v.mu.closed {
		close(q.done) // nobody can say
		return q
	}
	v.mu.questions[owner.Owner] = q
	v.asking.Go(func() {
		err := v.livez(owner.Address)
		v.settle(owner.Owner, q, err != nil && v.life.Err() == nil)
	})
	return q
}

func (v *vigil) settle(owner string, q *question, silent bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.mu.questions, owner)
	if silent {
		v.noteLocked(owner)
	} else {
		delete(v.mu.silent, owner)
	}
	q.silent = silent
	close(q.done)
}

// note remembers an owner as silent.
func (v *vigil) note(owner string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.noteLocked(owner)
}

func (v *vigil) noteLocked(owner string) {
	if len(v.mu.silent) >= maxSilent {
		clear(v.mu.silent) // simpler than to choose, and costs one question each
	}
	v.mu.silent[owner] = time.Now()
}

// isKnownSilent reports whether the owner did not answer a moment ago, and sees to it that
// it is asked again. It waits for nothing.
func (v *vigil) isKnownSilent(owner coord.Record) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	found, ok := v.mu.silent[owner.Owner]
	age := time.Since(found)
	switch {
	case !ok:
		return false
	case age > silenceMemory:
		delete(v.mu.silent, owner.Owner)
		return false
	case age > reprobeEvery:
		v.askLocked(owner)
	}
	return true
}

// livez returns nil if somebody answers at the address, whatever it is.
func (v *vigil) livez(address string) error {
	ctx, cancel := context.WithTimeout(v.life, v.timeout)
	defer cancel()
	base, err := url.Parse(address)
	if err != nil {
		return err
	}
	target := url.URL{Scheme: base.Scheme, Host: base.Host, Path: "/livez"}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := v.transport.RoundTrip(request)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
