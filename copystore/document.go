package copystore

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// FormatVersion is the version of manifests and origins that this code writes,
// and the only one it reads.
const FormatVersion = 1

// maxDocument bounds manifests and origins, in bytes. Ours have a few hundred.
const maxDocument = 16 << 10

// A Timestamp is a moment to the millisecond. In JSON it is the number of
// milliseconds since the Unix epoch.
type Timestamp struct{ time.Time }

// NewTimestamp rounds t down to the millisecond.
func NewTimestamp(t time.Time) Timestamp { return Timestamp{time.UnixMilli(t.UnixMilli()).UTC()} }

// MarshalJSON writes milliseconds since the Unix epoch.
func (t Timestamp) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, t.UnixMilli(), 10), nil
}

// UnmarshalJSON reads milliseconds since the Unix epoch.
func (t *Timestamp) UnmarshalJSON(b []byte) error {
	ms, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return errors.New("a time must be a whole number of milliseconds")
	}
	*t = Timestamp{time.UnixMilli(ms).UTC()}
	return nil
}

// sumMember is followed by 64 hex digits and the end of the document. The sum is
// over the document as it is without it. Nothing else would notice a flipped bit
// in an origin's seq, which would lead the lineage to another copy.
const sumMember = `,"sum":"`

// encodeDocument returns v as a JSON object that ends with its own SHA-256.
func encodeDocument(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	return fmt.Appendf(nil, "%s%s%x\"}\n", body[:len(body)-1], sumMember, sum), nil
}

// decodeDocument reads into v exactly what encodeDocument wrote. The first
// checks are there for their messages; the comparison at the end is what
// refuses every second spelling: duplicate members, members in another case or
// order, missing ones, other spacing, bad UTF-8, a wrong sum.
func decodeDocument(b []byte, v any) error {
	if len(b) > maxDocument {
		return fmt.Errorf("has more than %d bytes", maxDocument)
	}
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return fmt.Errorf("is not JSON of the expected form: %w", err)
	}
	if version.Format != FormatVersion {
		return fmt.Errorf("has format %d, this version reads only %d", version.Format, FormatVersion)
	}
	body, err := withoutSum(b)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("is not of the expected form: %w", err)
	}
	canonical, err := encodeDocument(v)
	if err != nil {
		return err
	}
	if !bytes.Equal(b, canonical) {
		return errors.New("is not spelled as this software writes it")
	}
	return nil
}

func withoutSum(b []byte) ([]byte, error) {
	i := bytes.LastIndex(b, []byte(sumMember))
	if i < 0 {
		return nil, errors.New("has no checksum at its end")
	}
	body := append(bytes.Clone(b[:i]), '}')
	if sum := sha256.Sum256(body); !bytes.Equal(b[i+len(sumMember):], fmt.Appendf(nil, "%x\"}\n", sum)) {
		return nil, errors.New("does not match its checksum")
	}
	return body, nil
}
