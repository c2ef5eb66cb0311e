package httpapi

import (
	"context"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

// Perform runs do as the work of an endpoint that opens tenants.
func (s *Server) Perform(ctx context.Context, key coord.Key, do func(context.Context, *router.Handle) error) error {
	_, err := s.perform(ctx, visit{key: key, wants: openOrCreate, do: func(ctx context.Context, h *router.Handle) (reply, error) {
		return reply{}, do(ctx, h)
	}})
	return err
}

// PerformRead runs do as the work of an endpoint that changes nothing, up to where it is
// sent.
func (s *Server) PerformRead(ctx context.Context, key coord.Key, do func(context.Context, *router.Handle) error) error {
	answer, err := s.perform(ctx, visit{key: key, wants: openOrCreate, reads: true, do: func(ctx context.Context, h *router.Handle) (reply, error) {
		return reply{}, do(ctx, h)
	}})
	if err == nil {
		err = answer.confirm()
	}
	return err
}

// SetHeartbeat is for before the first stream.
func (s *Server) SetHeartbeat(d time.Duration) { s.beat = d }

// MaxStreams is how many event streams may be open at once.
const MaxStreams = maxStreams

// Routes returns the patterns of all endpoints.
func (s *Server) Routes() (patterns []string) {
	for _, route := range s.routes() {
		patterns = append(patterns, route.pattern)
	}
	return patterns
}

// SetOwnerPatience is for before the first forward.
func (s *Server) SetOwnerPatience(patience, timeout time.Duration) {
	s.forward.vigil.patience, s.forward.vigil.timeout = patience, timeout
}
