package copystore

import (
	"context"
	"errors"
	"io"
	"iter"
	"strings"

	"github.com/leaseholddb/leasehold/coord"
)

// ErrExists is returned, usually wrapped, by [Store.Create] when the name is
// taken. The object that has it is durable.
var ErrExists = errors.New("copystore: object exists")

// ErrNotExist is returned, usually wrapped, by [Store.Open] when no object has
// the name.
var ErrNotExist = errors.New("copystore: object does not exist")

// MaxName is the greatest number of bytes in an object's name.
const MaxName = 255

// An Object is one entry of a listing.
type Object struct {
	Name string
	Size int64 // in bytes
}

// A Store holds immutable objects under slash-separated names. Implementations
// are safe for concurrent use, by several processes too.
//
// An implementation validates names with [ValidateName] and prefixes with
// [ValidatePrefix] before it touches anything. It may assume that ctx is not
// nil, and that callers never use one name as a directory of another ("a" and
// "a/b").
//
// Every call, and every Read of an opened object, returns soon after ctx has
// ended, with an error that matches ctx's. An implementation that buffers calls
// [Progress] as bytes move. Apart from the two sentinels,
// implementations return their own errors; callers must not expect a code in
// them.
//
// All answers are linearizable: once Create has succeeded, every later Open and
// List anywhere sees the object, and once Delete has succeeded, none does.
type Store interface {
	// Create makes an object of the size bytes that r yields, if the name is
	// free, and fails with [ErrExists] if it is not. Of several concurrent calls
	// for one name at most one succeeds, and the object is wholly the winner's.
	// Nobody ever sees a part of an object.
	//
	// On success the object is durable. If r fails, the error matches r's and
	// there is no object; the same goes for an r that yields more or fewer bytes
	// than size. After any other error the object may be there, wholly, or
	// appear later. Create reads r from one goroutine at a time and not after it
	// has returned.
	Create(ctx context.Context, name string, r io.Reader, size int64) error

	// Open returns the object's bytes, or [ErrNotExist]. The reader ends with
	// io.EOF only after the last byte; a transfer that breaks off is another
	// error. The caller closes it, and ctx lasts until then.
	Open(ctx context.Context, name string) (io.ReadCloser, error)

	// List yields the objects whose names start with prefix, each once, in no
	// promised order. A prefix is empty or ends with a slash, so that "a/b/" never yields
	// an object of "a/bc/". An error ends the sequence. Objects that come or go
	// while the listing runs may or may not be yielded; all others are.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]

	// Delete removes the object. Removing what is not there succeeds.
	Delete(ctx context.Context, name string) error
}

// A FileStore is a Store that may be able to make a file of this host an object
// without copying it.
type FileStore interface {
	Store

	// CreateFromFile is Create with the bytes of the regular file at path. Nobody
	// changes the file from then on, through no name of it; the caller may remove
	// path afterwards. Where the file has to be copied after all it fails with an
	// error that matches [errors.ErrUnsupported], and has done nothing.
	CreateFromFile(ctx context.Context, name, path string) error
}

// ValidateName refuses, with [coord.CodeIDInvalid], every string that is not a
// name: 1–[MaxName] bytes, parts of [a-z0-9._-] separated by single slashes, no
// part starting with a dot.
func ValidateName(name string) error {
	if name == "" || len(name) > MaxName {
		return nameInvalid("must have 1 to 255 bytes")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' {
			return nameInvalid("has a part that is empty or starts with a dot")
		}
		for i := range len(part) {
			if c := part[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
				return nameInvalid("may hold only a-z, 0-9, dot, underscore, dash and slash")
			}
		}
	}
	return nil
}

// ValidatePrefix refuses, with [coord.CodeIDInvalid], every string that is
// neither empty nor a name followed by a slash.
func ValidatePrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	name, ok := strings.CutSuffix(prefix, "/")
	if !ok {
		return nameInvalid("is a prefix and must end with a slash")
	}
	return ValidateName(name)
}

func nameInvalid(why string) error {
	return &coord.Error{Code: coord.CodeIDInvalid, Detail: "object name " + why}
}
