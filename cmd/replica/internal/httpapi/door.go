package httpapi

import (
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/leaseholddb/leasehold/coord"
)

const organizations = "/v1/organizations/"

// admit checks the path as it came on the wire, before the mux cleans or matches
// it, so that an id that is none never becomes a redirect, a log line or a
// different id.
func admit(escapedPath string) error {
	if rest, ok := strings.CutPrefix(escapedPath, organizations); ok {
		organization, rest, _ := strings.Cut(rest, "/")
		if err := checkSegment(organization, coord.ValidateOrganization); err != nil {
			return err
		}
		if rest, ok := strings.CutPrefix(rest, "tenants/"); ok {
			tenant, _, _ := strings.Cut(rest, "/")
			if err := checkSegment(tenant, coord.ValidateTenant); err != nil {
				return err
			}
		}
	}
	if path.Clean(escapedPath) != strings.TrimSuffix(escapedPath, "/") && escapedPath != "/" {
		return refuse(CodeNotFound, "the path is not in its plain form")
	}
	return nil
}

func checkSegment(escaped string, validate func(string) error) error {
	id, err := url.PathUnescape(escaped)
	if err != nil {
		return refuse(coord.CodeIDInvalid, "an id in the path is not escaped correctly")
	}
	return validate(id)
}

// keyOf returns the key in the path of a request that the mux has matched.
func keyOf(r *http.Request) (coord.Key, error) {
	return coord.NewKey(r.PathValue("organization"), r.PathValue("tenant"))
}

// refuseUnrouted answers a request that no pattern matches. The mux knows whether
// another method would have; its own reply is not problem+json.
func (s *Server) refuseUnrouted(w http.ResponseWriter, r *http.Request, fallback http.Handler) {
	probe := &discardWriter{header: make(http.Header)}
	fallback.ServeHTTP(probe, r)
	if probe.status != http.StatusMethodNotAllowed {
		s.fail(w, r, refuse(CodeNotFound, "there is no such endpoint"))
		return
	}
	allow := probe.header.Get("Allow")
	w.Header().Set("Allow", allow)
	s.fail(w, r, refuse(CodeMethodNotAllowed, "this endpoint has "+allow))
}

// A discardWriter keeps a reply's status and header only.
type discardWriter struct {
	header http.Header
	status int
}

func (w *discardWriter) Header() http.Header         { return w.header }
func (w *discardWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *discardWriter) WriteHeader(status int)      { w.status = status }
