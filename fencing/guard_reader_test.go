package fencing

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A hookedGate calls back at each proof.
type hookedGate struct{ check atomic.Pointer[func()] }

func (g *hookedGate) Check() error {
	if f := g.check.Load(); f != nil {
		(*f)()
	}
	return nil
}

func (g *hookedGate) CheckRead() error { return nil }

// A lateInterrupt stands for one that the scheduler holds up: it is under way until
// release is closed.
type lateInterrupt struct {
	driver.Stmt
	underWay func()
	release  chan struct{}
}

func (l *lateInterrupt) ExecContext(context.Context, []driver.NamedValue) (driver.Result, error) {
	l.underWay()
	<-l.release
	return driver.ResultNoRows, nil
}

// Trap 43: a context may end when a step is over and its call has not yet left. The call
// returns only when the interrupt has come and gone, which would hit the next one.
func TestReadWaitsForAnInterruptThatCameLate(t *testing.T) {
	gate := &hookedGate{}
	d, err := OpenDatabase(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), gate, &DatabaseOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const query = "SELECT 1 UNION ALL SELECT 2"
	for name, read := range map[string]func(ctx context.Context, c *conn, arm func()) (driver.Rows, error){
		"first step": func(ctx context.Context, c *conn, arm func()) (driver.Rows, error) {
			arm()
			return c.QueryContext(ctx, query, nil)
		},
		"later step": func(ctx context.Context, c *conn, arm func()) (driver.Rows, error) {
			rows, err := c.QueryContext(ctx, query, nil)
			if err != nil {
				return nil, err
			}
			arm()
			return rows, rows.Next(make([]driver.Value, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := withRaw(d.DB(), func(c *conn) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				underWay := make(chan struct{})
				late := &lateInterrupt{c.raw.interrupt.(driver.Stmt), sync.OnceFunc(func() { close(underWay) }), make(chan struct{})}
				original := c.raw.interrupt
				c.raw.interrupt = late
				end := func() { cancel(); <-underWay }
				returned, over := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(over)
					rows, err := read(ctx, c, func() {
						c.raw.event, c.raw.proved = true, 1 // the call is proved once more before it leaves
						gate.check.Store(&end)
					})
					close(returned)
					gate.check.Store(nil)
					if err != nil && err != io.EOF {
						t.Error(err)
					}
					if rows != nil {
						rows.Close()
					}
				}()
				<-underWay
				timer := time.NewTimer(50 * time.Millisecond)
				defer timer.Stop()
				select {
				case <-returned:
					t.Error("the call returned while an interrupt was under way")
				case <-timer.C:
				}
				close(late.release)
				<-over
				c.raw.interrupt = original
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// withRaw lends the guarded connection itself.
func withRaw(db *sql.DB, use func(c *conn)) error {
	lent, err := db.Conn(context.Background())
	if err != nil {
		return err
	}
	defer lent.Close()
	return lent.Raw(func(dc any) error { use(dc.(*conn)); return nil })
}
