package copystore

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/leaseholddb/leasehold/coord"
)

// A Manifest says what an image is. Once it is in the store, the image is a copy.
type Manifest struct {
	Format   int            `json:"format"` // [FormatVersion]
	Key      coord.Key      `json:"key"`
	Epoch    coord.Epoch    `json:"epoch"`
	Revision coord.Revision `json:"revision"` // of the tenure that published it
	Seq      uint64         `json:"seq"`
	Owner    string         `json:"owner"`
	Size     int64          `json:"size"`   // of the image, in bytes
	SHA256   string         `json:"sha256"` // of the image, 64 lowercase hex digits
	Time     Timestamp      `json:"time"`   // when the manifest was written, by the owner's wall clock; for people
	Events   int64          `json:"events"` // how many events the image holds
	Parent   *Ref           `json:"parent"` // the copy before this one in the lineage; nil for the first
}

// Ref returns the copy's name.
func (m Manifest) Ref() Ref { return Ref{Epoch: m.Epoch, Seq: m.Seq} }

// Encode returns the manifest as it is stored, a JSON object that ends with a
// checksum of its own. ParseManifest is its inverse.
func (m Manifest) Encode() ([]byte, error) { return encodeDocument(m) }

// ParseManifest reads the manifest of copy ref of key. It refuses everything that
// [Manifest.Encode] cannot have written for that copy: unknown, repeated or
// missing members, anything before or after, a name that is not ref's, a field
// out of range. The error says why in words.
func ParseManifest(b []byte, key coord.Key, ref Ref) (Manifest, error) {
	var m Manifest
	if err := decodeDocument(b, &m); err != nil {
		return Manifest{}, fmt.Errorf("manifest %w", err)
	}
	if err := m.validate(key, ref); err != nil {
		return Manifest{}, fmt.Errorf("manifest: %w", err)
	}
	return m, nil
}

func (m Manifest) validate(key coord.Key, ref Ref) error {
	switch {
	case m.Key != key:
		return errors.New("is of another tenant")
	case m.Epoch != ref.Epoch:
		return fmt.Errorf("is of epoch %d, not %d", m.Epoch, ref.Epoch)
	case m.Seq != ref.Seq:
		return fmt.Errorf("is of seq %d, not %d", m.Seq, ref.Seq)
	case m.Revision < 0:
		return fmt.Errorf("revision %d is negative", m.Revision)
	case m.Size <= 0:
		return fmt.Errorf("size %d is not positive", m.Size)
	case !isSHA256(m.SHA256):
		return errors.New("sha256 is not 64 lowercase hex digits")
	case m.Time.UnixMilli() <= 0:
		return errors.New("time is not positive")
	case m.Events < 0:
		return fmt.Errorf("number of events %d is negative", m.Events)
	}
	if err := coord.ValidateOwner(m.Owner); err != nil {
		return err
	}
	if m.Parent == nil {
		return nil
	}
	if err := m.Parent.validate(); err != nil {
		return err
	}
	if !m.Parent.Before(ref) {
		return fmt.Errorf("parent %s is not older", m.Parent)
	}
	return nil
}

func isSHA256(s string) bool {
	sum, err := hex.DecodeString(s)
	return err == nil && len(sum) == 32 && hex.EncodeToString(sum) == s
}
