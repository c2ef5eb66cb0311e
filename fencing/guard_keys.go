package fencing

import "strings"

// Foreign keys are enforced unless a consumer says otherwise, as those do who
// rebuild a table: dropping one whose rows others refer to would take those
// along. SQLite keeps the setting per connection, and a consumer of a pool cannot say
// which connection gets which call. So here it belongs to the handle: what one
// connection was told outside a transaction, the handle's others follow at their
// next call outside one.

// followKeys gives the connection the handle's setting. Inside a transaction
// SQLite ignores it.
func (c *conn) followKeys() error {
	if !c.raw.inner.AutoCommit() {
		return nil
	}
	off := c.scope.keysOff.Load()
	text := "PRAGMA foreign_keys = 1"
	if off {
		text = "PRAGMA foreign_keys = 0"
	}
	if err := c.raw.run(text); err != nil {
		return err
	}
	c.raw.keysOff = off
	return nil
}

// noticeKeys finds out what a call has done to the setting. The authorizer does not
// see a statement that is compiled already, so the text tells which calls may have.
func (c *conn) noticeKeys() error {
	if !strings.Contains(strings.ToLower(c.raw.sql), "foreign_keys") {
		return nil
	}
	off, err := c.raw.foreignKeysOff()
	if err != nil {
		c.raw.spoiled = true
		return err
	}
	if off != c.raw.keysOff {
		c.raw.keysOff = off
		c.scope.keysOff.Store(off)
	}
	return nil
}

func (r *rawConn) foreignKeysOff() (bool, error) {
	r.internal = true
	defer func() { r.internal = false }()
	value, err := queryText(r.inner, "PRAGMA foreign_keys")
	return value == "0", err
}
