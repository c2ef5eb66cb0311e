package fencing

import (
	"errors"
	"fmt"

	"github.com/mattn/go-sqlite3"
)

// openSQLite opens one plain connection.
func openSQLite(dsn string) (*sqlite3.SQLiteConn, error) {
	c, err := (&sqlite3.SQLiteDriver{}).Open(dsn)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	return c.(*sqlite3.SQLiteConn), nil
}

// connect opens one plain connection to the file; disconnect closes it. Opening changes
// nothing in the file, and the name is looked at before and after it: what other hands put
// there in between is neither used nor changed.
func (d *Database) connect() (*sqlite3.SQLiteConn, error) {
	if err := d.present(); err != nil {
		return nil, err
	}
	d.opened.Add(1) // before there is a descriptor; Rest relies on it
	c, err := openSQLite(d.dsn)
	if gone := d.present(); gone != nil {
		err = gone // which explains any other error
	} else if err == nil {
		err = d.intoWAL(c)
	}
	if err == nil {
		return c, nil
	}
	return nil, d.unconnected(c, err)
}

// unconnected returns what connect failed with, in the connection c if there is one. A
// connection takes descriptors, and room for the index of the write-ahead log.
func (d *Database) unconnected(c *sqlite3.SQLiteConn, err error) error {
	if c == nil {
		d.opened.Add(-1)
		return lacking(err)
	}
	return lacking(errors.Join(err, d.disconnect(c)))
}

func (d *Database) disconnect(c *sqlite3.SQLiteConn) error {
	err := c.Close()
	d.opened.Add(-1)
	if err != nil {
		return fmt.Errorf("close connection: %w", err)
	}
	return nil
}

// intoWAL finds the file in WAL mode, or brings it there if it has pages or is new.
func (d *Database) intoWAL(c *sqlite3.SQLiteConn) error {
	mode, err := queryText(c, "PRAGMA journal_mode")
	if err != nil || mode == "wal" {
		return err
	}
	if d.file.info != nil {
		if pages, err := queryText(c, "PRAGMA page_count"); err != nil {
			return err
		} else if pages == "0" {
			return gone("was emptied")
		}
	}
	mode, err = queryText(c, "PRAGMA journal_mode = WAL")
	if err == nil && mode != "wal" {
		err = fmt.Errorf("open database: journal mode is %q, not WAL", mode)
	}
	return err
}
