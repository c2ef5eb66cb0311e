package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/router"
)

const (
	// streamBacklog is how many events a stream may be behind.
	streamBacklog = 1024
	// streamHeartbeat shows both ends that an idle stream is alive.
	streamHeartbeat = 15 * time.Second
)

// An eventBody is a router's event on the wire.
type eventBody struct {
	Time     int64               `json:"time"` // ms
	Kind     router.EventKind    `json:"kind"`
	Key      coord.Key           `json:"key"`
	Epoch    coord.Epoch         `json:"epoch"`
	From     *copystore.Ref      `json:"from,omitempty"`
	Skipped  []coord.SkippedCopy `json:"skipped,omitempty"`
	Seq      uint64              `json:"seq,omitempty"`
	Code     coord.Code          `json:"code,omitempty"`
	InFlight int                 `json:"in_flight,omitempty"`
	Flushed  *bool               `json:"flushed,omitempty"` // of released
	Took     int64               `json:"took,omitempty"`    // ms, rounded up
	Dropped  int                 `json:"dropped,omitempty"` // events before this one that nobody saw
}

func newEventBody(e router.Event) eventBody {
	body := eventBody{
		Time: e.Time.UnixMilli(), Kind: e.Kind, Key: e.Key, Epoch: e.Epoch,
		From: e.From, Skipped: e.Skipped, Seq: e.Seq, Code: e.Code, InFlight: e.InFlight, Dropped: e.Dropped,
		Took: int64((e.Took + time.Millisecond - 1) / time.Millisecond),
	}
	if e.Kind == router.EventReleased {
		body.Flushed = &e.Flushed
	}
	return body
}

// A hub hands events to the streams that are open.
type hub struct {
	onDrop func()

	mu struct {
		sync.Mutex
		next    uint64 // number of the next event
		streams map[chan []byte]struct{}
		closed  bool
	}
}

func newHub(onDrop func()) *hub {
	h := &hub{onDrop: onDrop}
	h.mu.streams = make(map[chan []byte]struct{})
	return h
}

// publish never blocks: a stream whose backlog is full is ended.
func (h *hub) publish(e router.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.next++
	if len(h.mu.streams) == 0 {
		return
	}
	data, err := json.Marshal(newEventBody(e))
	if err != nil {
		panic(fmt.Errorf("httpapi: encode an event: %w", err)) // plain data always encodes
	}
	frame := fmt.Appendf(nil, "id: %d\nevent: %s\ndata: %s\n\n", h.mu.next, e.Kind, data)
	for stream := range h.mu.streams {
		select {
		case stream <- frame:
		default:
			h.onDrop()
			h.endLocked(stream)
		}
	}
}

// subscribe returns a stream, which is closed when it falls behind, when it is
// unsubscribed and when the hub is closed.
func (h *hub) subscribe() chan []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	stream := make(chan []byte, streamBacklog)
	if h.mu.closed {
		close(stream)
		return stream
	}
	h.mu.streams[stream] = struct{}{}
	return stream
}

func (h *hub) unsubscribe(stream chan []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endLocked(stream)
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.closed = true
	for stream := range h.mu.streams {
		h.endLocked(stream)
	}
}

func (h *hub) endLocked(stream chan []byte) {
	if _, open := h.mu.streams[stream]; open {
		delete(h.mu.streams, stream)
		close(stream)
	}
}

// streamEvents sends events as they happen, until the client goes, falls behind,
// or the replica has handed everything off. There is no replay: what happened
// before the stream's first line is not in it.
func (s *Server) streamEvents(w http.ResponseWriter, r *http.Request) {
	if err := noParameters(r); err != nil {
		s.fail(w, r, err)
		return
	}
	stream := s.monitor.hub.subscribe()
	defer s.monitor.hub.unsubscribe(stream)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	beat := time.NewTicker(streamHeartbeat)
	defer beat.Stop()
	frame, open := []byte(": events of "+s.replica+"\n\n"), true
	for open {
		if !s.sendFrame(w, frame) {
			return
		}
		select {
		case frame, open = <-stream:
		case <-beat.C:
			if s.authorize(operators, r) != nil {
				return // the token was withdrawn meanwhile
			}
			frame = []byte(":\n\n")
		case <-r.Context().Done():
			return
		}
	}
}

// sendFrame gives the client WriteTimeout to take a frame.
func (s *Server) sendFrame(w http.ResponseWriter, frame []byte) bool {
	s.limitWriting(w)
	if _, err := w.Write(frame); err != nil {
		return false
	}
	return http.NewResponseController(w).Flush() == nil
}
