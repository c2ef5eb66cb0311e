package copystore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"

	"github.com/leaseholddb/leasehold/coord"
)

// IdentityName is the one object that belongs to the store and not to a tenant: no
// organization id has a dot. Whoever has to know whether a place is a store at all looks
// for it.
const IdentityName = "store-id.json"

// A storeIdentity says which store this is, wherever it is reached or moved to.
type storeIdentity struct {
	Format int    `json:"format"` // [FormatVersion]
	ID     string `json:"id"`
}

var identityChars = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// Identity returns the store's id, which is made on the first call that anybody
// makes on the store and moves with its objects. Replicas that share a lease store
// compare it, because replicas with different copies would each go on from a state
// of its own.
func (c *Copies) Identity(ctx context.Context) (string, error) {
	mine := storeIdentity{Format: FormatVersion, ID: rand.Text()}
	body, err := encodeDocument(mine)
	if err != nil {
		return "", err
	}
	err = c.createDocument(ctx, coord.Key{}, IdentityName, body)
	if err == nil {
		return mine.ID, nil
	}
	if !errors.Is(err, ErrExists) {
		return "", err
	}
	return c.KnownIdentity(ctx)
}

// KnownIdentity is Identity for callers that must not make a store of what is none: it
// fails with [ErrNotExist] if nobody has asked for the store's id yet.
func (c *Copies) KnownIdentity(ctx context.Context) (string, error) {
	body, err := c.readDocument(ctx, coord.Key{}, IdentityName)
	if err != nil {
		return "", err
	}
	return parseIdentity(body)
}

func parseIdentity(body []byte) (string, error) {
	var found storeIdentity
	err := decodeDocument(body, &found)
	if err == nil && !identityChars.MatchString(found.ID) {
		err = errors.New("it has no id")
	}
	if err != nil {
		return "", &coord.Error{
			Code: coord.CodeCopyConflict, Op: "identify the copy store",
			Detail: fmt.Sprintf("%s: %v", IdentityName, err),
			Hint:   "restore the object, or remove it together with the lease store's record of it, if the copies are the right ones",
		}
	}
	return found.ID, nil
}
