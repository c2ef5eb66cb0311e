package access

import (
	"crypto/sha256"
	"sync/atomic"
)

// A Live keeps what files say, and can read them again. Value is safe for
// concurrent use; Refresh is called by one goroutine at a time.
type Live[T any] struct {
	read  func() ([]byte, error)
	parse func([]byte) (T, error)

	seen  [sha256.Size]byte // of what the value was parsed from
	value atomic.Pointer[T]
}

// NewLive reads and parses for the first time, and fails as they do.
func NewLive[T any](read func() ([]byte, error), parse func([]byte) (T, error)) (*Live[T], error) {
	l := &Live[T]{read: read, parse: parse}
	if _, err := l.Refresh(); err != nil {
		return nil, err
	}
	return l, nil
}

// Value returns what was read when it was last in order.
func (l *Live[T]) Value() T { return *l.value.Load() }

// Refresh reads again, and reports whether there is a new value. After an error the
// value stays as it is.
func (l *Live[T]) Refresh() (changed bool, err error) {
	text, err := l.read()
	if err != nil {
		return false, err
	}
	digest := sha256.Sum256(text)
	if digest == l.seen && l.value.Load() != nil {
		return false, nil
	}
	value, err := l.parse(text)
	if err != nil {
		return false, err
	}
	l.seen = digest
	l.value.Store(&value)
	return true, nil
}
