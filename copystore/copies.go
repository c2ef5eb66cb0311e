package copystore

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

// Defaults of [Options].
const (
	// DefaultCallTimeout is what a zero Options.CallTimeout means.
	DefaultCallTimeout = 30 * time.Second
	// DefaultStallTimeout is what a zero Options.StallTimeout means.
	DefaultStallTimeout = 30 * time.Second
)

// Options of [New]. The zero value is ready for use.
type Options struct {
	// Clock times out calls and dates documents; nil means [coord.SystemClock].
	Clock coord.Clock
	// CallTimeout bounds each store call on a document, each delete, and the
	// wait for the next entries of a listing; 0 means [DefaultCallTimeout].
	CallTimeout time.Duration
	// StallTimeout bounds how long the transfer of an image may go without a
	// byte moving; 0 means [DefaultStallTimeout]. A stall is noticed between one
	// and two of it after the last byte.
	StallTimeout time.Duration
}

// Validate names all violations together, with [coord.CodeOptionsInvalid].
func (o Options) Validate() error {
	var bad []string
	if o.CallTimeout < 0 {
		bad = append(bad, fmt.Sprintf("CallTimeout %v is negative", o.CallTimeout))
	}
	if o.StallTimeout < 0 {
		bad = append(bad, fmt.Sprintf("StallTimeout %v is negative", o.StallTimeout))
	}
	if len(bad) > 0 {
		return &coord.Error{Code: coord.CodeOptionsInvalid, Op: "copystore", Detail: strings.Join(bad, "; ")}
	}
	return nil
}

// Copies restores, publishes and deletes the copies of any number of tenants in
// one store. It is safe for concurrent use, with one [Copies.Restore] at a time
// per tenant and directory.
type Copies struct {
	store        Store
	clock        coord.Clock
	callTimeout  time.Duration
	stallTimeout time.Duration

	moved   atomic.Uint64 // steps of calls, and returns
	overdue atomic.Int64  // calls under way whose context has ended
}

// New returns the Copies of store. Bad options are refused with
// [coord.CodeOptionsInvalid]; the store is not touched.
func New(store Store, o Options) (*Copies, error) {
	if store == nil {
		return nil, &coord.Error{Code: coord.CodeOptionsInvalid, Op: "copystore", Detail: "the store is nil"}
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	c := &Copies{store: store, clock: o.Clock, callTimeout: o.CallTimeout, stallTimeout: o.StallTimeout}
	if c.clock == nil {
		c.clock = coord.SystemClock()
	}
	if c.callTimeout == 0 {
		c.callTimeout = DefaultCallTimeout
	}
	if c.stallTimeout == 0 {
		c.stallTimeout = DefaultStallTimeout
	}
	return c, nil
}
