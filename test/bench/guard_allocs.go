package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"runtime"
)

const (
	// allocsLimit is how many allocations a guarded call may make more than a plain
	// one.
	allocsLimit = 1
	allocsCalls = 2000
)

// guardAllocs adds the greatest difference of allocations per call over the calls of
// a usual service.
func guardAllocs(b *bench, p *guardPair) error {
	ctx := context.Background()
	worst := row{
		Name: "guard: allocations per call, more", Value: -1e9, Limit: allocsLimit, Better: lower, Unit: "allocs",
	}
	for _, call := range []struct {
		name string
		make func(db *sql.DB) (call func() error, done func() error, err error)
	}{
		{"Exec", func(db *sql.DB) (func() error, func() error, error) {
			return func() error {
				_, err := db.ExecContext(ctx, "UPDATE t SET v = v WHERE id = ?", -1)
				return err
			}, nil, nil
		}},
		{"QueryRow", func(db *sql.DB) (func() error, func() error, error) {
			return func() error {
				var v string
				return db.QueryRowContext(ctx, "SELECT v FROM t WHERE id = ?", 7).Scan(&v)
			}, nil, nil
		}},
		{"Stmt.Exec", func(db *sql.DB) (func() error, func() error, error) {
			s, err := db.PrepareContext(ctx, "UPDATE t SET v = v WHERE id = ?")
			if err != nil {
				return nil, nil, err
			}
			return func() error { _, err := s.ExecContext(ctx, -1); return err }, s.Close, nil
		}},
		{"Tx.Exec", func(db *sql.DB) (func() error, func() error, error) {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return nil, nil, err
			}
			return func() error {
				_, err := tx.ExecContext(ctx, "UPDATE t SET v = v WHERE id = ?", -1)
				return err
			}, tx.Rollback, nil
		}},
		{"Rows.Next", func(db *sql.DB) (func() error, func() error, error) {
			rows, err := db.QueryContext(ctx, "SELECT id FROM t")
			if err != nil {
				return nil, nil, err
			}
			return func() error {
				if !rows.Next() {
					return errors.Join(rows.Err(), errors.New("too few rows"))
				}
				return nil
			}, rows.Close, nil
		}},
	} {
		var each [2]float64
		for i, db := range []*sql.DB{p.guarded, p.plain} {
			f, done, err := call.make(db)
			if err == nil {
				each[i], err = allocsPerCall(f)
			}
			if done != nil {
				err = errors.Join(err, done())
			}
			if err != nil {
				return fmt.Errorf("%s: %w", call.name, err)
			}
		}
		if more := each[0] - each[1]; more > worst.Value {
			worst.Value = more
			worst.Ours = fmt.Sprintf("guarded %s %.1f", call.name, each[0])
			worst.Reference = fmt.Sprintf("%s %.1f", plainDriver, each[1])
		}
	}
	b.add(worst)
	return nil
}

func allocsPerCall(f func() error) (float64, error) {
	for range 10 { // fills caches
		if err := f(); err != nil {
			return 0, err
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range allocsCalls {
		if err := f(); err != nil {
			return 0, err
		}
	}
	runtime.ReadMemStats(&after)
	// What the runtime allocates meanwhile for itself is less than that.
	return math.Round(100*float64(after.Mallocs-before.Mallocs)/allocsCalls) / 100, nil
}
