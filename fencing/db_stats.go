package fencing

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Stats are figures about an open database at one moment.
type Stats struct {
	// FileBytes is the size of the file, without the write-ahead log.
	FileBytes int64
	// WALBytes is the size of the write-ahead log. SQLite uses the log again from its
	// beginning once no reader needs it, so it stays within some megabytes unless a
	// read is left open while others write; then it grows until that read ends.
	WALBytes int64
	// Connections is how many connections to SQLite there are, in use or not.
	Connections int
	// Commits is what [Database.Commits] returns.
	Commits uint64
}

// Stats returns the figures without opening a file, which would cost SQLite its
// locks, and without asking the gate.
func (d *Database) Stats() (Stats, error) {
	s := Stats{Connections: int(d.opened.Load()), Commits: d.Commits()}
	var err error
	if s.FileBytes, err = sizeOf(d.path); err != nil {
		return Stats{}, err
	}
	s.WALBytes, err = sizeOf(d.path + "-wal")
	return s, err
}

func sizeOf(path string) (int64, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("size of the database: %w", err)
	}
	return info.Size(), nil
}
