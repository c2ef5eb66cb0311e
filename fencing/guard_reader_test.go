package fencing

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math/rand/v2"
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

// reads are the two kinds of steps. arm comes right before the step; it is the step that
// calls hook().
var reads = map[string]func(ctx context.Context, c *conn, arm func()) (driver.Rows, error){
	"first step": func(ctx context.Context, c *conn, arm func()) (driver.Rows, error) {
		arm()
		return c.QueryContext(ctx, "SELECT hook() UNION ALL SELECT 2", nil)
	},
	"later step": func(ctx context.Context, c *conn, arm func()) (driver.Rows, error) {
		rows, err := c.QueryContext(ctx, "SELECT 1 UNION ALL SELECT hook()", nil)
		row := make([]driver.Value, 1)
		if err == nil {
			err = rows.Next(row) // which the query has stepped to
		}
		if err != nil {
			return nil, err
		}
		arm()
		return rows, rows.Next(row)
	},
}

// withHook lends a guarded connection on which the SQL function hook calls *hook.
func withHook(t *testing.T, gate Gate, use func(c *conn, hook *func())) {
	t.Helper()
	d, err := OpenDatabase(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), gate, &DatabaseOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	err = withRaw(d.DB(), func(c *conn) {
		hook := func() {}
		if err := c.raw.inner.RegisterFunc("hook", func() int { hook(); return 1 }, false); err != nil {
			t.Error(err)
			return
		}
		use(c, &hook)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Trap 43: an interrupt may be held up until its step is over. The call returns only when
// it has come and gone, since it would hit the next one, and reports the context's end.
func TestReadWaitsForAnInterruptThatIsLate(t *testing.T) {
	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			withHook(t, &hookedGate{}, func(c *conn, hook *func()) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				underWay := make(chan struct{})
				late := &lateInterrupt{c.raw.interrupt.(driver.Stmt), sync.OnceFunc(func() { close(underWay) }), make(chan struct{})}
				original := c.raw.interrupt
				c.raw.interrupt = late
				returned, over := make(chan error, 1), make(chan struct{})
				go func() {
					defer close(over)
					rows, err := read(ctx, c, func() { *hook = func() { cancel(); <-underWay } })
					returned <- err
					if rows != nil {
						rows.Close()
					}
				}()
				select {
				case <-underWay:
				case err := <-returned:
					t.Errorf("the call returned (%v) uninterrupted", err)
					return
				}
				timer := time.NewTimer(50 * time.Millisecond)
				defer timer.Stop()
				select {
				case err := <-returned:
					t.Errorf("the call returned (%v) while an interrupt was under way", err)
					returned <- err
				case <-timer.C:
				}
				close(late.release)
				<-over
				if err := <-returned; !errors.Is(err, context.Canceled) {
					t.Errorf("the call that was interrupted says %v", err)
				}
				c.raw.interrupt = original
			})
		})
	}
}

// Trap 43: a context that ends when a step is over, though its call is not, interrupts
// nothing: other result sets of the connection go on.
func TestReadThatIsOverInterruptsNothing(t *testing.T) {
	gate := &hookedGate{}
	for name, read := range reads {
		t.Run(name, func(t *testing.T) {
			withHook(t, gate, func(c *conn, _ *func()) {
				other, err := c.QueryContext(t.Context(), "SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3", nil)
				if err != nil {
					t.Error(err)
					return
				}
				defer other.Close()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				d, ended := nextReader(c)
				looked := false
				look := func() {
					cancel()
					<-ended
					d.interruptStep()
					d.pending.Wait()
					looked = true
				}
				rows, err := read(ctx, c, func() {
					c.raw.event, c.raw.proved = true, 1 // the gate is asked once more before the call leaves
					gate.check.Store(&look)
				})
				gate.check.Store(nil)
				if !looked {
					t.Error("the gate was not asked after the step: the test sees nothing")
				}
				if err != nil {
					t.Errorf("the step that was over: %v", err)
				}
				for range 3 {
					if err := other.Next(make([]driver.Value, 1)); err != nil {
						t.Errorf("the other result set: %v", err)
					}
				}
				if rows != nil {
					if err := rows.Next(make([]driver.Value, 1)); !errors.Is(err, context.Canceled) {
						t.Errorf("the step after the end of the context: %v", err)
					}
					rows.Close()
				}
			})
		})
	}
}

// nextReader is what the next query of c will use. It interrupts nothing by itself; ended is
// closed when it has seen the end of its context.
func nextReader(c *conn) (d *reader, ended chan struct{}) {
	ended = make(chan struct{})
	c.readers++
	d = &reader{c: c, number: connStepping - 1 + c.readers, over: make(chan struct{})}
	d.fire = func() { d.ended.Store(true); close(ended) }
	c.spare = d
	return d, ended
}

// Trap 43: steps, ends of contexts and interrupts meet at every moment. A result set whose
// context goes on is interrupted only if a step of another one reported that it was.
func TestReadsInterruptOnlyTheirOwnSteps(t *testing.T) {
	const rounds, rows = 300, 40
	d, err := OpenDatabase(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), &hookedGate{}, &DatabaseOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var work sync.WaitGroup
	var cancelled, survived atomic.Int64
	for range 8 {
		work.Go(func() {
			err := withRaw(d.DB(), func(c *conn) {
				for range rounds {
					hit, err := readBesideAnother(c, rows)
					switch {
					case err == nil && !hit:
						survived.Add(1)
					case hit:
						cancelled.Add(1)
					default:
						t.Errorf("no step was cancelled, but the other result set says %v", err)
					}
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if cancelled.Load() == 0 || survived.Load() == 0 {
		t.Errorf("%d rounds with a cancelled step, %d without: the test proves little", cancelled.Load(), survived.Load())
	}
}

// readBesideAnother reads a result set whose context ends at some moment, reports whether
// a step of it was cancelled, and returns what became of another result set of c.
func readBesideAnother(c *conn, rows int) (hit bool, err error) {
	const query = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM r WHERE i < 1000) SELECT i FROM r"
	row := make([]driver.Value, 1)
	other, err := c.QueryContext(context.Background(), query, nil)
	if err != nil {
		return false, err
	}
	defer other.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var canceller sync.WaitGroup
	defer canceller.Wait()
	defer cancel()
	canceller.Go(func() {
		pause(ctx, time.Duration(rand.IntN(1<<rand.IntN(12)))*time.Microsecond)
		cancel()
	})
	read, err := c.QueryContext(ctx, query, nil)
	if errors.Is(err, context.Canceled) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer read.Close()
	for range rand.IntN(rows) {
		if err := read.Next(row); errors.Is(err, context.Canceled) {
			return true, nil
		} else if err != nil {
			return false, err
		}
	}
	canceller.Wait()
	return false, other.Next(row)
}

// Taking a connection back meets calls that come and go, and steps that end, at every
// moment. None gets away.
func TestTakeBackMeetsCallsAtEveryMoment(t *testing.T) {
	d, err := OpenDatabase(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), &hookedGate{}, &DatabaseOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for range 3000 {
		db := d.Scoped(nil)
		err := withRaw(db, func(c *conn) {
			const step, calls = connStepping, 100_000
			var work sync.WaitGroup
			started := make(chan struct{})
			work.Go(func() {
				for n := 0; n < calls && c.enterAs(step) == nil; n++ {
					if n == 0 {
						close(started)
					}
					c.state.CompareAndSwap(step, connBusy)
					c.leave()
				}
			})
			<-started
			c.takeBack()
			work.Wait()
			select {
			case <-c.gone:
			default:
				t.Error("the connection was not taken back")
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		db.Close()
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
