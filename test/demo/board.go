package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/leaseholddb/leasehold/coord"
)

const (
	redrawEvery = 300 * time.Millisecond
	lineEvery   = time.Second // where there is no terminal
	columns     = 12
)

// A board shows who owns what at which epoch: on a terminal as a table that is drawn
// anew in its place, elsewhere as a line now and then. A nil board only talks.
type board struct {
	d      *demo
	live   bool
	began  time.Time
	cancel context.CancelFunc
	done   chan struct{}

	mu struct {
		sync.Mutex
		height int // lines of the table on the terminal, 0 if none stands there
		last   string
	}
}

func newBoard(d *demo) *board {
	info, err := os.Stdout.Stat()
	b := &board{d: d, live: err == nil && info.Mode()&os.ModeCharDevice != 0, began: time.Now(), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(d.ctx)
	b.cancel = cancel
	go b.run(ctx)
	return b
}

// stop leaves the last table standing. It may be called more than once.
func (b *board) stop() {
	b.cancel()
	<-b.done
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.height = 0
}

// say prints a line above the table.
func (b *board) say(line string) {
	if b == nil {
		fmt.Println(line)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.eraseLocked()
	fmt.Println(line)
}

func (b *board) run(ctx context.Context) {
	defer close(b.done)
	every := lineEvery
	if b.live {
		every = redrawEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if held, err := b.d.holders(); err == nil {
			b.draw(held)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (b *board) draw(held map[coord.Key]holder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	summary := b.d.summary(held)
	if !b.live {
		if summary != b.mu.last {
			fmt.Printf("  %4.1f s  %s\n", time.Since(b.began).Seconds(), summary)
		}
		b.mu.last = summary
		return
	}
	b.eraseLocked()
	text := b.d.table(held) + fmt.Sprintf("  %4.1f s  %s\n", time.Since(b.began).Seconds(), summary)
	fmt.Print(text)
	b.mu.height = strings.Count(text, "\n")
}

func (b *board) eraseLocked() {
	if b.mu.height > 0 {
		fmt.Printf("\x1b[%dA\x1b[J", b.mu.height)
	}
	b.mu.height = 0
}

// table has a cell for each airport: its code, its owner and the epoch.
func (d *demo) table(held map[coord.Key]holder) string {
	var b strings.Builder
	for i, key := range d.keys {
		h := held[key]
		owner := "·" // nobody at this moment
		if h.held {
			owner = h.name
		}
		fmt.Fprintf(&b, "  %s %s%d", d.groups[key][0].Airport, owner, h.epoch)
		if i%columns == columns-1 || i == len(d.keys)-1 {
			b.WriteString("\n")
		}
	}
	return b.String()
}

func (d *demo) summary(held map[coord.Key]holder) string {
	owned, epochs := make(map[string]int), make(map[coord.Epoch]int)
	newest := coord.Epoch(1)
	for _, key := range d.keys {
		h := held[key]
		if h.held {
			owned[h.name]++
		}
		epochs[h.epoch]++
		newest = max(newest, h.epoch)
	}
	var b strings.Builder
	for _, name := range []string{"a", "b", "c"} {
		fmt.Fprintf(&b, "%s owns %3d  ", name, owned[name])
	}
	b.WriteString("| at epoch")
	for epoch := coord.Epoch(1); epoch <= newest; epoch++ {
		fmt.Fprintf(&b, " %d: %d", uint64(epoch), epochs[epoch])
	}
	return b.String()
}
