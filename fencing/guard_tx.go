package fencing

import (
	"context"
)

// A tx is a transaction that database/sql began.
type tx struct {
	c        *conn
	readOnly bool
}

// open begins the transaction: at once for writing, or so that SQLite refuses
// every write until finish.
func (t *tx) open(ctx context.Context) error {
	c := t.c
	if t.readOnly {
		err := c.settle(c.raw.run("PRAGMA query_only = 1; BEGIN"))
		if err != nil {
			t.allowWrites()
		}
		return err
	}
	claimed, err := c.claimWriter(ctx)
	if err != nil {
		return err
	}
	err = c.settle(c.raw.run("BEGIN IMMEDIATE"))
	if err != nil && claimed {
		c.yieldWriter()
	}
	return err
}

// Commit implements driver.Tx. database/sql does not roll back after a Commit that
// failed, so this does.
func (t *tx) Commit() error {
	c := t.c
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	if c.tx != t {
		return ErrTxAborted
	}
	defer t.finish()
	if err := c.scope.checkRead(); err != nil {
		return err
	}
	if c.aborted != nil {
		return c.aborted
	}
	c.tx = nil // what this commits is not an end before the end
	return c.settle(c.raw.run("COMMIT"))
}

// Rollback implements driver.Tx; it needs no lease.
func (t *tx) Rollback() error {
	c := t.c
	if c.enter() != nil {
		return nil // rolled back with its connection
	}
	defer c.leave()
	if c.tx == t {
		t.finish()
	}
	return nil
}

// finish makes sure that no transaction is open and that c is as it was before it.
func (t *tx) finish() {
	c := t.c
	c.tx, c.aborted = nil, nil
	c.raw.rollback()
	c.raw.forget()
	if t.readOnly {
		t.allowWrites()
	}
	c.yieldWriter()
}

func (t *tx) allowWrites() {
	if t.c.raw.run("PRAGMA query_only = 0") != nil {
		t.c.raw.spoiled = true
	}
}
