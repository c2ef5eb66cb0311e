package copystoretest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/leaseholddb/leasehold/copystore"
)

const (
	smallSize = 10
	// Larger than what a store might hold in memory before it begins.
	transferSize = 300_000
)

func checkFailingReader(ctx context.Context, s subject) error {
	broken := errors.New("the reader broke")
	for _, size := range []int{smallSize, transferSize} {
		for _, after := range []int{0, size / 2, size} {
			r := &hookReader{r: &pattern{size: int64(size)}, after: after, hook: func() error { return broken }}
			if err := s.Store.Create(ctx, s.prefix+"a", r, int64(size)); !errors.Is(err, broken) {
				return fmt.Errorf("a reader that fails after %d bytes of %d gives %v, want its error", after, size, err)
			}
			if err := s.expectAbsent(ctx, "a"); err != nil {
				return fmt.Errorf("after %d bytes of %d: %w", after, size, err)
			}
		}
	}
	if err := s.put(ctx, "a"); err != nil {
		return fmt.Errorf("the name is not free: %w", err)
	}
	return s.remove(ctx, "a")
}

func checkWrongSize(ctx context.Context, s subject) error {
	for _, has := range []int64{0, smallSize - 1, smallSize + 1, transferSize} {
		err := s.Store.Create(ctx, s.prefix+"a", &pattern{size: has}, smallSize)
		if err == nil || errors.Is(err, copystore.ErrExists) {
			return fmt.Errorf("a reader of %d bytes announced as %d gives %v", has, smallSize, err)
		}
		if err := s.expectAbsent(ctx, "a"); err != nil {
			return err
		}
	}
	return nil
}

func checkUnfinished(ctx context.Context, s subject) error {
	look := func() error { return s.expectAbsent(ctx, "a") }
	r := &hookReader{r: &pattern{size: transferSize}, after: transferSize - 1, hook: look}
	if err := s.Store.Create(ctx, s.prefix+"a", r, transferSize); err != nil {
		return err
	}
	return s.remove(ctx, "a")
}

func checkCancelled(ctx context.Context, s subject) error {
	if err := s.put(ctx, "a"); err != nil {
		return err
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.create(over, "b", "x"); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("create gives %v, want context.Canceled", err)
	}
	if _, err := s.read(over, "a"); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("open gives %v, want context.Canceled", err)
	}
	if _, err := s.list(over, ""); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("list gives %v, want context.Canceled", err)
	}
	if err := s.remove(over, "a"); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("delete gives %v, want context.Canceled", err)
	}
	if err := s.expect(ctx, "", "a"); err != nil {
		return err
	}
	return s.remove(ctx, "a")
}

func checkCancelledTransfer(ctx context.Context, s subject) error {
	over, cancel := context.WithCancel(ctx)
	defer cancel()
	const endless = 1 << 40
	r := &hookReader{r: &pattern{size: endless}, after: transferSize, hook: func() error { cancel(); return nil }}
	if err := s.Store.Create(over, s.prefix+"a", r, endless); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("create gives %v, want context.Canceled", err)
	}
	return s.expectAbsent(ctx, "a")
}

func checkCancelledRead(ctx context.Context, s subject) error {
	if err := s.Store.Create(ctx, s.prefix+"a", &pattern{size: s.BigSize}, s.BigSize); err != nil {
		return err
	}
	over, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := s.Store.Open(over, s.prefix+"a")
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := io.ReadFull(r, make([]byte, smallSize)); err != nil {
		return err
	}
	cancel()
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("reading on gives %v, want context.Canceled", err)
	}
	return s.remove(ctx, "a")
}

func checkBigObject(ctx context.Context, s subject) error {
	want := sha256.New()
	in := io.TeeReader(&pattern{size: s.BigSize}, want)
	if err := s.Store.Create(ctx, s.prefix+"a", in, s.BigSize); err != nil {
		return err
	}
	r, err := s.Store.Open(ctx, s.prefix+"a")
	if err != nil {
		return err
	}
	defer r.Close()
	got := sha256.New()
	n, err := io.Copy(got, r)
	if err != nil || n != s.BigSize || string(got.Sum(nil)) != string(want.Sum(nil)) {
		return fmt.Errorf("read %d bytes of %d with another hash or an error (%v)", n, s.BigSize, err)
	}
	return s.remove(ctx, "a")
}

func checkRaceToCreate(ctx context.Context, s subject) error {
	for round := range s.Rounds {
		name := fmt.Sprintf("o%d", round)
		body := func(i int) string { return strings.Repeat(fmt.Sprintf("racer %d\n", i), 1000+i) }
		errs := race(s.Racers, func(i int) error { return s.create(ctx, name, body(i)) })
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				return fmt.Errorf("racers %d and %d both created the object", winner, i)
			case err == nil:
				winner = i
			case !errors.Is(err, copystore.ErrExists):
				return fmt.Errorf("a loser got %w, want ErrExists", err)
			}
		}
		if winner < 0 {
			return errors.New("nobody created the object")
		}
		if got, err := s.read(ctx, name); err != nil || got != body(winner) {
			return fmt.Errorf("the object is not the winner's: %d bytes (%v)", len(got), err)
		}
		if err := s.remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func checkRaceWithDeletes(ctx context.Context, s subject) error {
	for range s.Rounds {
		errs := race(s.Racers, func(i int) error {
			for n := range 4 {
				name := fmt.Sprintf("dir/sub/o%d-%d", i, n)
				if err := s.put(ctx, name); err != nil {
					return err
				}
				if got, err := s.read(ctx, name); err != nil || got != name {
					return fmt.Errorf("%q reads as %q (%v)", name, got, err)
				}
				if err := s.remove(ctx, name); err != nil {
					return err
				}
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			return err
		}
		if err := s.expect(ctx, ""); err != nil {
			return err
		}
	}
	return nil
}

// race runs f n times at once and returns the results by number.
func race(n int, f func(i int) error) []error {
	errs := make([]error, n)
	start, done := make(chan struct{}), make(chan struct{})
	for i := range n {
		go func() {
			defer func() {
				if p := recover(); p != nil {
					errs[i] = fmt.Errorf("panic: %v", p)
				}
				done <- struct{}{}
			}()
			<-start
			errs[i] = f(i)
		}()
	}
	close(start)
	for range n {
		<-done
	}
	return errs
}
