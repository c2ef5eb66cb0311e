package access

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

const (
	maxFile = 16 << 20 // bytes of a file that holds secrets
	others  = fs.FileMode(0o007)
)

// ReadSecret reads a file that must be closed to everybody but its owner and
// group: one that others may read, write or run is refused.
func ReadSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no ordinary file", path)
	}
	if mode := info.Mode().Perm(); mode&others != 0 {
		return nil, fmt.Errorf("%s has mode %#o, so that everybody on this machine may use it: chmod o= %s", path, mode, path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return text, nil
}

// ParseToken returns the one token that a file holds.
func ParseToken(text []byte) (string, error) {
	words := strings.Fields(string(text))
	if len(words) != 1 || len(words[0]) > maxToken {
		return "", errors.New("the file must hold one token and nothing else")
	}
	return words[0], nil
}
