package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"time"
)

// What a client says, a line each, most with the update that it is about.
const (
	saidHolds   = "holds"
	saidDone    = "done"    // the write returned without an error
	saidAcked   = "acked"   // and whoever asked for it was told that it will last
	saidRefused = "refused" // whoever asked for it was told that it may not have happened
)

// A guard is one way of keeping a register.
type guard interface {
	title() string
	// create makes an empty register, before any client runs.
	create(ctx context.Context) error
	// read returns the register, after all clients have ended.
	read(ctx context.Context) (string, error)
	// updates makes updates until ctx ends, and ends between two of them.
	updates(ctx context.Context) error
}

// A worker is a client, in a process of its own.
type worker struct {
	settings
	side, name, etcd, dir string
	n                     int // updates so far
}

func (w *worker) guard() guard {
	if w.side == "plain" {
		return &plain{w}
	}
	return &guarded{w}
}

func (w *worker) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return w.guard().updates(ctx)
}

func (w *worker) say(what, update string) { fmt.Println(what, update) }

func (w *worker) nextUpdate() string {
	w.n++
	return fmt.Sprintf("%s/%d", w.name, w.n)
}

const (
	createRegister = "CREATE TABLE register(value TEXT NOT NULL); INSERT INTO register VALUES ('')"
	readRegister   = "SELECT value FROM register"
	writeRegister  = "UPDATE register SET value = ?"
)

// readModifyWrite is what the lock is for: between read and commit nobody else may
// write. check is asked in between.
func (w *worker) readModifyWrite(ctx context.Context, db *sql.DB, update string, check func() error) error {
	var value string
	if err := db.QueryRowContext(ctx, readRegister).Scan(&value); err != nil {
		return err
	}
	time.Sleep(w.think)
	if err := check(); err != nil {
		return err
	}
	time.Sleep(w.write)
	_, err := db.ExecContext(ctx, writeRegister, value+" "+update)
	return err
}
