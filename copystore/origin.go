package copystore

import (
	"errors"
	"fmt"

	"github.com/leaseholddb/leasehold/coord"
)

// An Origin is an owner's claim to its epoch: it says what the owner's ledger
// started from.
type Origin struct {
	Format   int            `json:"format"` // [FormatVersion]
	Key      coord.Key      `json:"key"`
	Epoch    coord.Epoch    `json:"epoch"`
	Revision coord.Revision `json:"revision"` // of the claiming tenure
	Owner    string         `json:"owner"`
	Time     Timestamp      `json:"time"` // of the claim, by the owner's wall clock; for people
	From     *Ref           `json:"from"` // the copy that was restored; nil if the ledger started empty
}

// Encode returns the origin as it is stored, a JSON object that ends with a
// checksum of its own. ParseOrigin is its inverse.
func (o Origin) Encode() ([]byte, error) { return encodeDocument(o) }

// ParseOrigin reads the origin of key's epoch, as strictly as [ParseManifest]
// does. What an origin names is always of an older epoch, so every lineage ends.
func ParseOrigin(b []byte, key coord.Key, epoch coord.Epoch) (Origin, error) {
	var o Origin
	if err := decodeDocument(b, &o); err != nil {
		return Origin{}, fmt.Errorf("origin %w", err)
	}
	if err := o.validate(key, epoch); err != nil {
		return Origin{}, fmt.Errorf("origin: %w", err)
	}
	return o, nil
}

func (o Origin) validate(key coord.Key, epoch coord.Epoch) error {
	switch {
	case o.Key != key:
		return errors.New("is of another tenant")
	case o.Epoch != epoch:
		return fmt.Errorf("is of epoch %d, not %d", o.Epoch, epoch)
	case o.Revision < 0:
		return fmt.Errorf("revision %d is negative", o.Revision)
	case o.Time.UnixMilli() <= 0:
		return errors.New("time is not positive")
	}
	if err := coord.ValidateOwner(o.Owner); err != nil {
		return err
	}
	if o.From == nil {
		return nil
	}
	if err := o.From.validate(); err != nil {
		return err
	}
	if o.From.Epoch >= epoch {
		return fmt.Errorf("names %s, which is not of an older epoch", o.From)
	}
	return nil
}

// sameClaim reports whether o and other are one claim, written by one tenure
// and naming the same copy. The time may differ: a retry has its own.
func (o Origin) sameClaim(other Origin) bool {
	same := o.From == nil && other.From == nil ||
		o.From != nil && other.From != nil && *o.From == *other.From
	return same && o.Key == other.Key && o.Epoch == other.Epoch && o.Revision == other.Revision && o.Owner == other.Owner
}
