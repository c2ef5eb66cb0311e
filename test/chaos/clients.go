//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/sim/history"
)

const (
	askTimeout  = 5 * time.Second
	thinkTime   = 60 * time.Millisecond // of a client between calls, on average
	maxAttempts = 4                     // of one append
	forgetful   = 10                    // one tenant in so many is forgotten now and then
)

// A client sends calls to random tenants through random replicas, one at a time.
type client struct {
	*fleet
	number int
	random *rand.Rand
	count  int // of values written
}

func newClient(f *fleet, number int) *client {
	return &client{fleet: f, number: number, random: rand.New(rand.NewPCG(f.setup.Seed, uint64(number)))}
}

// run sends calls until ctx ends. The one that is under way then is finished.
func (c *client) run(ctx context.Context) {
	for ctx.Err() == nil {
		i := c.random.IntN(len(c.keys))
		key := c.keys[i]
		switch n := c.random.IntN(1000); {
		case n < 460:
			c.append(ctx, key)
		case n < 550:
			c.read(key)
		case n < 680:
			c.set(key)
		case n < 820:
			c.get(key)
		case n < 870:
			c.plain(history.Snapshot, key, http.MethodPost, "/snapshot")
		case n < 995:
			c.plain(history.Handoff, key, http.MethodPost, "/handoff")
		case i%forgetful == 0:
			c.plain(history.Forget, key, http.MethodDelete, "")
		}
		sleep(ctx, time.Duration(c.random.Int64N(int64(2*thinkTime))))
	}
}

// call sends one call through a random replica and records both its ends. Parse adds
// to an acknowledgement what its body says.
func (c *client) call(call history.Call, key coord.Key, value, method, suffix string, body any, parse func([]byte, *history.Event) error) history.Outcome {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	through := c.nodes[c.random.IntN(len(c.nodes))]
	began := c.record.Invoke(history.Event{Tenant: key.String(), Client: c.number, Call: call, Value: value})
	a, err := c.ask(ctx, through, method, tenantPath(key)+suffix, body)
	e := outcome(a, err)
	if e.Outcome == history.OK && parse != nil {
		if err := parse(a.body, &e); err != nil {
			e = history.Event{Outcome: history.Unknown, Code: "BODY: " + err.Error()}
		}
	}
	c.record.Return(began, e)
	return e.Outcome
}

func (c *client) plain(call history.Call, key coord.Key, method, suffix string) {
	c.call(call, key, "", method, suffix, nil, nil)
}

// append appends one value, and again under the same key after an answer that is no
// acknowledgement, as a client does. It reports whether it was acknowledged.
func (c *client) append(ctx context.Context, key coord.Key) bool {
	c.count++
	value := fmt.Sprintf("%d-%d", c.number, c.count)
	event := map[string]any{"actor": "chaos", "kind": "note", "subject_id": "s", "payload": map[string]int{"n": c.count}, "idem_key": value}
	for range maxAttempts {
		done := c.call(history.Append, key, value, http.MethodPost, "/events", event, func(body []byte, e *history.Event) error {
			var reply struct{ Seq uint64 }
			err := json.Unmarshal(body, &reply)
			e.Position = reply.Seq
			return err
		})
		if done == history.OK || !sleep(ctx, 100*time.Millisecond) {
			return done == history.OK
		}
	}
	return false
}

// The register is a table of one row beside the ledger.
const (
	makeRegister  = "CREATE TABLE IF NOT EXISTS chaos_register(id INTEGER PRIMARY KEY CHECK (id = 1), value TEXT NOT NULL)"
	writeRegister = "INSERT INTO chaos_register VALUES (1, ?) ON CONFLICT(id) DO UPDATE SET value = excluded.value"
	readRegister  = "SELECT value FROM chaos_register"
	readLog       = "SELECT idem_key FROM events ORDER BY seq"
)

func (c *client) set(key coord.Key) {
	c.count++
	value := fmt.Sprintf("r%d-%d", c.number, c.count)
	c.call(history.Set, key, value, http.MethodPost, "/exec", map[string]any{"statements": []any{
		map[string]any{"sql": makeRegister},
		map[string]any{"sql": writeRegister, "args": []string{value}},
	}}, nil)
}

func (c *client) get(key coord.Key) {
	c.call(history.Get, key, "", http.MethodPost, "/query", map[string]any{"sql": readRegister}, column)
}

func (c *client) read(key coord.Key) {
	c.call(history.Read, key, "", http.MethodPost, "/query", map[string]any{"sql": readLog}, column)
}

// column takes the only column of a query's rows.
func column(body []byte, e *history.Event) error {
	var reply struct {
		Rows      [][]string
		Truncated bool
	}
	if err := json.Unmarshal(body, &reply); err != nil {
		return err
	}
	if reply.Truncated {
		return fmt.Errorf("%d rows, and more", len(reply.Rows))
	}
	for _, row := range reply.Rows {
		e.Values = append(e.Values, row...)
	}
	return nil
}
