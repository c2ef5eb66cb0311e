package httpapi

import (
	"net/http"
	"strings"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/access"
)

// An audience says whose requests an endpoint takes, once tokens are asked for.
type audience int

const (
	nobody    audience = iota // so that an endpoint about which nothing was said is closed
	everybody                 // needs no token and tells nothing
	operators                 // a token of the operator role
	theTenant                 // or one of the tenant role, for the tenant in the path
)

// authorize refuses a request that its sender's token does not give a right to. The
// key is the one that the handler works on, out of the same match of the path: there
// is no second reading of it that could come to another tenant.
func (s *Server) authorize(who audience, r *http.Request) error {
	if s.opts.Tokens == nil || who == everybody {
		return nil
	}
	tokens := s.opts.Tokens()
	grant, known := tokens.Find(bearer(r.Header))
	if !known {
		return refuse(CodeUnauthenticated, "the request needs a header \"Authorization: Bearer …\" with a token that this replica knows")
	}
	if err := fromPeer(tokens, r.Header); err != nil {
		return err
	}
	switch {
	case grant.Role == access.Operator && (who == operators || who == theTenant):
		return nil
	case who == theTenant && grant.Role == access.Tenant:
		key, err := keyOf(r)
		if err != nil {
			return err
		}
		if grant.Reaches(key) {
			return nil
		}
	}
	return refuse(CodeForbidden, "the token does not give a right to this")
}

// fromPeer refuses a request that says that a replica forwarded it, and cannot show
// the token of one. Its rights are those of the client's own token all the same.
func fromPeer(tokens *access.Tokens, h http.Header) error {
	if len(h.Values(HeaderForwarded)) == 0 {
		return nil
	}
	if peer, known := tokens.Find(h.Get(HeaderPeer)); known && peer.Role == access.Peer {
		return nil
	}
	return refuse(CodeForbidden, "only a replica may forward requests, and what came with this one is no token of the peer role that this replica knows")
}

// bearer returns the token of a request that shows exactly one.
func bearer(h http.Header) string {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return ""
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return token
}

// introduce puts this replica's own token, and no other, into a forwarded request.
func (s *Server) introduce(h http.Header) {
	h.Del(HeaderPeer)
	if s.opts.PeerToken != nil {
		h.Set(HeaderPeer, s.opts.PeerToken())
	}
}

// peerScheme is the one that other replicas are reached by: tokens never travel in
// the clear because an address says so.
func (s *Server) peerScheme() string {
	if s.opts.PeerTLS != nil {
		return "https"
	}
	return "http"
}
