package ledger

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leaseholddb/leasehold/coord"
)

// CodeEventInvalid is returned when an event is not one that a ledger can hold,
// before the database is touched.
const CodeEventInvalid coord.Code = "EVENT_INVALID"

// Limits of an event, in bytes.
const (
	MaxText    = 512      // of the actor, the kind, the subject id and the idempotency key each
	MaxPayload = 64 << 20 // of the payload
)

// MaxDepth is how deep arrays and objects of a payload may be nested, which is what
// SQLite's JSON functions can read.
const MaxDepth = 1000

// MaxRead is the greatest number of events that one Read returns.
const MaxRead = 1000

// An Event is one entry of a ledger.
type Event struct {
	// Seq numbers the events of a tenant 1, 2, 3, … in the order of commit. The
	// ledger assigns it.
	Seq int64
	// TenantID is the ledger's tenant. The ledger assigns it.
	TenantID string
	// Time is when the event was appended, with milliseconds. The ledger
	// assigns the time of the append if it is zero.
	Time time.Time
	// Actor says on whose behalf the event was appended; may be empty.
	Actor string
	// Kind says what happened; not empty.
	Kind string
	// SubjectID says to what; may be empty.
	SubjectID string
	// Payload is JSON, stored without insignificant white space. Empty
	// means null.
	Payload json.RawMessage
	// IdemKey is the idempotency key; empty if the event has none.
	IdemKey string
}

// Validate reports with [CodeEventInvalid] why no ledger can hold e, so that a
// caller can refuse it before it opens one. An append validates again.
func (e Event) Validate() error {
	_, err := e.normalize("")
	return err
}

// normalize returns e as it would be stored.
func (e Event) normalize(tenant string) (Event, error) {
	for _, field := range []struct{ name, value string }{
		{"actor", e.Actor}, {"kind", e.Kind}, {"subject_id", e.SubjectID}, {"idem_key", e.IdemKey},
	} {
		if err := checkText(field.name, field.value); err != nil {
			return Event{}, err
		}
	}
	if e.Kind == "" {
		return Event{}, invalid("kind is empty")
	}
	payload, err := compact(e.Payload)
	if err != nil {
		return Event{}, err
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	e.Time = time.UnixMilli(e.Time.UnixMilli()).UTC()
	e.Seq, e.TenantID, e.Payload = 0, tenant, payload
	return e, nil
}

func checkText(name, s string) error {
	switch {
	case len(s) > MaxText:
		return invalid(fmt.Sprintf("%s has more than %d bytes", name, MaxText))
	case !utf8.ValidString(s):
		return invalid(name + " is not well-formed UTF-8")
	case strings.ContainsRune(s, 0):
		return invalid(name + " contains a NUL")
	}
	return nil
}

func compact(payload json.RawMessage) (json.RawMessage, error) {
	if len(payload) == 0 {
		return json.RawMessage("null"), nil
	}
	if len(payload) > MaxPayload {
		return nil, invalid(fmt.Sprintf("payload has more than %d bytes", MaxPayload))
	}
	if !utf8.Valid(payload) {
		return nil, invalid("payload is not well-formed UTF-8")
	}
	var b bytes.Buffer
	if err := json.Compact(&b, payload); err != nil {
		return nil, invalid("payload is not JSON")
	}
	if depthOf(b.Bytes()) > MaxDepth {
		return nil, invalid(fmt.Sprintf("payload is nested more than %d deep", MaxDepth))
	}
	return b.Bytes(), nil
}

// depthOf returns how deep valid JSON is nested.
func depthOf(text []byte) int {
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return deepest
}

// sameBody reports whether a repeated append means the event that is there.
func (e Event) sameBody(other Event) bool {
	return e.Actor == other.Actor && e.Kind == other.Kind && e.SubjectID == other.SubjectID &&
		bytes.Equal(e.Payload, other.Payload)
}

// invalid never repeats the offending text: it may be personal data.
func invalid(why string) error {
	return &coord.Error{Code: CodeEventInvalid, Op: "append", Detail: why}
}
