package httpapi_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leaseholddb/leasehold/cmd/replica/internal/httpapi"
	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/router"
)

// RO-16 over HTTP: events arrive in order, and the stream ends with the server.
func TestEventStream(t *testing.T) {
	f := newFleet(t)
	a := f.node("a")
	resp, err := f.client.Get(a.URL + "/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("Content-Type %q", got)
	}
	a.must(201, "POST", tenant+"/events", event("one"))
	a.must(200, "POST", tenant+"/handoff", "")
	var kinds []string
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e struct {
			Kind, Key string
			Flushed   *bool
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil || e.Key != "acme/"+tenantID {
			t.Fatalf("%v in %s", err, data)
		}
		kinds = append(kinds, e.Kind)
		if e.Kind == "released" {
			if e.Flushed == nil || !*e.Flushed {
				t.Errorf("not flushed: %s", data)
			}
			a.api.Close() // which ends the stream
		}
	}
	if want := []string{"acquired", "restored", "snapshot", "released"}; !slices.Equal(kinds, want) {
		t.Errorf("events %v, want %v", kinds, want)
	}
	// Streams that come after the end, end at once.
	if got := a.must(200, "GET", "/v1/events", ""); strings.Contains(got.body, "data:") {
		t.Errorf("%s", got)
	}
}

// The deadline of bodies does not end a stream.
func TestEventStreamOutlastsTheBodyTimeout(t *testing.T) {
	f := newFleet(t)
	const limit = 100 * time.Millisecond
	a := f.node("a", func(o *httpapi.Options, _ *router.Options) { o.BodyTimeout = limit })
	resp, err := f.client.Get(a.URL + "/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-time.After(3 * limit)
	a.must(200, "POST", tenant+"/open", "")
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data:") {
			return
		}
	}
	t.Error("the stream ended before anything happened")
}

// A stuckWriter is a client that reads nothing.
type stuckWriter struct {
	header  http.Header
	release chan struct{}
	entered chan struct{}
}

func (w *stuckWriter) Header() http.Header { return w.header }
func (w *stuckWriter) WriteHeader(int)     {}
func (w *stuckWriter) Flush()              {}
func (w *stuckWriter) Write(b []byte) (int, error) {
	select {
	case w.entered <- struct{}{}:
	default:
	}
	<-w.release
	return len(b), nil
}

// A client that does not read is cut off, and nobody waits for it.
func TestSlowStreamIsDropped(t *testing.T) {
	f := newFleet(t)
	monitor := httpapi.NewMonitor("test")
	a := f.node("a", func(o *httpapi.Options, r *router.Options) { o.Monitor, r.Observer = monitor, monitor.Observe })
	stuck := &stuckWriter{header: make(http.Header), release: make(chan struct{}), entered: make(chan struct{}, 1)}
	ended := make(chan struct{})
	req := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/events", nil)
	go func() {
		defer close(ended)
		a.api.ServeHTTP(stuck, req)
	}()
	<-stuck.entered
	began := time.Now()
	for range 5000 { // more than any backlog
		monitor.Observe(router.Event{Kind: router.EventRenewed, Key: mustKey(t), Epoch: coord.Epoch(1), Time: time.Now()})
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("observing took %v", took)
	}
	if got := a.must(200, "GET", "/metrics", ""); !strings.Contains(got.body, "leasehold_event_streams_dropped_total 1") {
		t.Error("the stream was not dropped")
	}
	close(stuck.release)
	<-ended // after its backlog, and without waiting for the client to go
}
