package blobstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/leaseholddb/leasehold/copystore"
)

// ErrUnfit is returned, wrapped, for a bucket that does what would let a superseded
// owner harm a tenant. The message says what was seen.
var ErrUnfit = errors.New("the bucket does not keep what durable copies rest on")

const (
	// No organization's id has an underscore, so this is nobody's object.
	probePrefix = "_probe/"

	probeRacers = 8
	probeRounds = 3
)

func unfit(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnfit, fmt.Sprintf(format, args...))
}

// probe puts the bucket through what Create, Open and List promise, on names that
// nobody else uses, and removes them.
func (s *Store) probe(ctx context.Context) error {
	p := &prober{s: s, prefix: probePrefix + strings.ToLower(rand.Text()) + "/"}
	err := p.run(ctx)
	return errors.Join(err, p.cleanUp(context.WithoutCancel(ctx)))
}

type prober struct {
	s      *Store
	prefix string
	made   []string
}

func (p *prober) run(ctx context.Context) error {
	steps := []func(context.Context) error{p.createTwice, p.completeTwice, p.race, p.remove}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *prober) name(name string) string {
	p.made = append(p.made, p.prefix+name)
	return p.prefix + name
}

func (p *prober) create(ctx context.Context, name, body string) error {
	return p.s.Create(ctx, name, strings.NewReader(body), int64(len(body)))
}

func (p *prober) read(ctx context.Context, name string) (string, error) {
	r, err := p.s.Open(ctx, name)
	if err != nil {
		return "", err
	}
	defer r.Close()
	body, err := io.ReadAll(r)
	return string(body), err
}

// createTwice also looks for the object before it exists: a store that remembers
// the answer must forget it.
func (p *prober) createTwice(ctx context.Context) error {
	name := p.name("twice")
	if _, err := p.read(ctx, name); !errors.Is(err, copystore.ErrNotExist) {
		return orUnfit(err, "an object that does not exist can be read")
	}
	if err := p.create(ctx, name, "first"); err != nil {
		return orUnfit(err, "")
	}
	if err := p.look(ctx, name, "first"); err != nil {
		return err
	}
	if err := p.create(ctx, name, "second"); !errors.Is(err, copystore.ErrExists) {
		return orUnfit(err, "a conditional write replaced an object that exists")
	}
	return p.look(ctx, name, "first")
}

// look reads and lists the object.
func (p *prober) look(ctx context.Context, name, want string) error {
	got, err := p.read(ctx, name)
	if errors.Is(err, copystore.ErrNotExist) {
		return unfit("an object cannot be read after it was written")
	}
	if err != nil {
		return err
	}
	if got != want {
		return unfit("an object reads as something else than was written")
	}
	size, found, err := p.listed(ctx, name)
	if err != nil {
		return err
	}
	if !found || size != int64(len(want)) {
		return unfit("an object is not listed, or not with its size, after it was written")
	}
	return nil
}

func (p *prober) listed(ctx context.Context, name string) (size int64, found bool, err error) {
	for o, err := range p.s.List(ctx, p.prefix) {
		if err != nil {
			return 0, false, err
		}
		if o.Name == name {
			size, found = o.Size, true
		}
	}
	return size, found, nil
}

// completeTwice asks the same of uploads in parts, which some stores complete
// without looking at the condition. One part may be as small as one likes.
func (p *prober) completeTwice(ctx context.Context) error {
	if p.s.s3 == nil {
		return nil
	}
	name := p.name("parts")
	for _, body := range []string{"first", "second"} {
		err := p.s.s3.upload(ctx, write{key: p.s.opts.Prefix + name, attempt: body}, bytes.NewReader([]byte(body)), int64(len(body)))
		if body == "second" && !isTaken(err) {
			return orUnfit(err, "completing an upload in parts replaced an object that exists")
		}
		if body == "first" && err != nil {
			return err
		}
	}
	return p.look(ctx, name, "first")
}

// race lets several conditional writes of one name arrive together.
func (p *prober) race(ctx context.Context) error {
	for round := range probeRounds {
		name := p.name(fmt.Sprintf("race%d", round))
		body := func(i int) string { return fmt.Sprintf("racer %d", i) }
		errs := make([]error, probeRacers)
		var racers sync.WaitGroup
		for i := range probeRacers {
			racers.Go(func() { errs[i] = p.create(ctx, name, body(i)) })
		}
		racers.Wait()
		var winners []int
		for i, err := range errs {
			if err == nil {
				winners = append(winners, i)
			} else if !errors.Is(err, copystore.ErrExists) {
				return err
			}
		}
		if len(winners) > 1 {
			return unfit("%d of %d conditional writes of one name succeeded", len(winners), probeRacers)
		}
		if len(winners) == 1 {
			if err := p.look(ctx, name, body(winners[0])); err != nil {
				return err
			}
		} // else the winner's answer was lost, and its repetition found its own object
	}
	return nil
}

func (p *prober) remove(ctx context.Context) error {
	name := p.prefix + "twice"
	if err := p.s.Delete(ctx, name); err != nil {
		return err
	}
	if _, err := p.read(ctx, name); !errors.Is(err, copystore.ErrNotExist) {
		return orUnfit(err, "an object can be read after it was deleted")
	}
	if _, found, err := p.listed(ctx, name); err != nil || found {
		return orUnfit(err, "an object is listed after it was deleted")
	}
	return nil
}

func (p *prober) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, abortTimeout)
	defer cancel()
	var errs []error
	for _, name := range p.made {
		if err := p.s.Delete(ctx, name); err != nil {
			errs = append(errs, err)
			break // a store that cannot be reached is not asked nine times
		}
	}
	return errors.Join(errs...)
}

// orUnfit returns err if the store failed, and otherwise says what it did.
func orUnfit(err error, what string) error {
	switch {
	case err == nil:
		return unfit("%s", what)
	case errors.Is(err, copystore.ErrExists):
		return unfit("a conditional write of a name that is free was refused")
	}
	return err
}
