package main

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"time"

	_ "github.com/mattn/go-sqlite3"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// plain guards a shared SQLite file with etcd's mutex.
type plain struct{ *worker }

const lockWithin = 10 * time.Second

var errSessionOver = errors.New("the session is over")

func (p *plain) title() string { return "etcd's concurrency.Mutex, SQLite file" }

func (p *plain) open() (*sql.DB, error) {
	return sql.Open("sqlite3", "file:"+filepath.Join(p.dir, "register.db")+"?_journal_mode=WAL&_busy_timeout=20000&_txlock=immediate")
}

func (p *plain) create(ctx context.Context) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	db, err := p.open()
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, createRegister)
	return errors.Join(err, db.Close())
}

func (p *plain) read(ctx context.Context) (value string, err error) {
	db, err := p.open()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return value, db.QueryRowContext(ctx, readRegister).Scan(&value)
}

func (p *plain) updates(ctx context.Context) (err error) {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{p.etcd}, DialTimeout: lockWithin, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer etcd.Close()
	db, err := p.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for ctx.Err() == nil {
		session, err := concurrency.NewSession(etcd, concurrency.WithTTL(int(p.ttl/time.Second)))
		if err != nil {
			sleep(ctx, p.think)
			continue
		}
		for ctx.Err() == nil && p.update(db, session) == nil {
		}
		_ = session.Close() // a session that is over cannot be closed
	}
	return nil
}

// update makes one update, or none if the session is found over in time. An error
// asks for a new session.
func (p *plain) update(db *sql.DB, session *concurrency.Session) error {
	ctx, cancel := context.WithTimeout(context.Background(), lockWithin)
	defer cancel()
	mutex := concurrency.NewMutex(session, "/sidebyside/lock/")
	if err := mutex.Lock(ctx); err != nil {
		return err
	}
	update := p.nextUpdate()
	p.say(saidHolds, update)
	check := func() error {
		select {
		case <-session.Done():
			return errSessionOver
		default:
			return nil
		}
	}
	err := p.readModifyWrite(context.Background(), db, update, check)
	if err == nil {
		err = check()
	}
	if err != nil {
		p.say(saidRefused, update)
		return err
	}
	p.say(saidAcked, update)
	return mutex.Unlock(ctx)
}
