// Package sqliteuri names files to SQLite.
package sqliteuri

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/leaseholddb/leasehold/coord"
)

const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/-_.~"

// File returns the SQLite URI of a file, with query as its parameters. Every byte of
// path that means something in a URI is escaped, so a name can neither set a
// parameter nor cut itself short. An empty path, and one with a NUL, which no URI
// can carry, are refused with [coord.CodeOptionsInvalid].
func File(path, query string) (string, error) {
	if path == "" || strings.ContainsRune(path, 0) {
		return "", &coord.Error{Code: coord.CodeOptionsInvalid, Op: "open database", Detail: "the path must not be empty or contain a NUL"}
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("absolute path of database: %w", err)
	}
	var b strings.Builder
	b.WriteString("file:")
	for i := range len(abs) {
		if c := abs[i]; strings.IndexByte(plain, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String() + "?" + query, nil
}
