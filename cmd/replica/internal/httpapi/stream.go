package httpapi

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/copystore"
	"github.com/leaseholddb/leasehold/router"
)

const (
	// streamBacklog is how many events a stream may be behind, and how many at
	// least are kept for streams that come back.
	streamBacklog = 1024
	// maxStreams are open at once: each costs a connection and a backlog.
	maxStreams = 64
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

// A hub hands events to the streams that are open, and keeps the latest ones for
// those that come back.
type hub struct {
	onDrop func()
	// incarnation is in every id, so that none of another process means anything here.
	incarnation string

	mu struct {
		sync.Mutex
		next    uint64 // number of the next event
		streams map[chan []byte]struct{}
		kept    []numbered // the latest events but renewals, oldest first
		dropped uint64     // number of the latest event that is kept no more
		closed  bool
	}
}

// A numbered is an event and its place among all of this process.
type numbered struct {
	n     uint64
	event router.Event
}

func newHub(onDrop func()) *hub {
	h := &hub{onDrop: onDrop, incarnation: strings.ToLower(rand.Text()[:8])}
	h.mu.streams = make(map[chan []byte]struct{})
	return h
}

// publish never blocks: a stream whose backlog is full is ended.
func (h *hub) publish(e router.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.next++
	now := numbered{h.mu.next, e}
	if e.Kind != router.EventRenewed {
		h.keepLocked(now)
	}
	if len(h.mu.streams) == 0 {
		return
	}
	frame := h.frame(now)
	for stream := range h.mu.streams {
		select {
		case stream <- frame:
		default:
			h.onDrop()
			h.endLocked(stream)
		}
	}
}

func (h *hub) keepLocked(e numbered) {
	if len(h.mu.kept) == 2*streamBacklog { // half at a time, so that events do not move for each
		h.mu.dropped = h.mu.kept[streamBacklog-1].n
		h.mu.kept = append(h.mu.kept[:0], h.mu.kept[streamBacklog:]...)
	}
	h.mu.kept = append(h.mu.kept, e)
}

// frame is the event on the wire.
func (h *hub) frame(e numbered) []byte {
	data, err := json.Marshal(newEventBody(e.event))
	if err != nil {
		panic(fmt.Errorf("httpapi: encode an event: %w", err)) // plain data always encodes
	}
	return fmt.Appendf(nil, "id: %s-%d\nevent: %s\ndata: %s\n\n", h.incarnation, e.n, e.event.Kind, data)
}

// subscribe returns a stream, which is closed when it falls behind, when it is
// unsubscribed and when the hub is closed; and the frames that it begins with, which
// are those after the event whose id is lastID. Without one there are none. It fails
// if there are as many streams as there may be.
func (h *hub) subscribe(lastID string) (stream chan []byte, begin []byte, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	stream = make(chan []byte, streamBacklog)
	if h.mu.closed {
		close(stream)
		return stream, nil, nil
	}
	if len(h.mu.streams) >= maxStreams {
		return nil, nil, refuse(CodeTooManyStreams, fmt.Sprintf("%d event streams are open here, the most there may be", maxStreams))
	}
	h.mu.streams[stream] = struct{}{}
	if lastID != "" {
		begin = h.sinceLocked(lastID)
	}
	return stream, begin, nil
}

// sinceLocked replays what is kept of the events after the one with the id. If some
// that were no renewals are kept no more, or were another process's, the first frame
// says so.
func (h *hub) sinceLocked(id string) (frames []byte) {
	text, ours := strings.CutPrefix(id, h.incarnation+"-")
	after, err := strconv.ParseUint(text, 10, 64)
	if !ours || err != nil {
		after = 0
	}
	if !ours || err != nil || after < h.mu.dropped {
		frames = append(frames, "event: missed\ndata: {}\n\n"...)
	}
	for _, e := range h.mu.kept {
		if e.n > after {
			frames = append(frames, h.frame(e)...)
		}
	}
	return frames
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

// streamEvents sends events as they happen, until the client goes, falls behind, its
// token is withdrawn, or the replica has handed everything off. A client that comes
// back with Last-Event-ID, as browsers do, first gets what it missed.
func (s *Server) streamEvents(w http.ResponseWriter, r *http.Request) {
	if err := noParameters(r); err != nil {
		s.fail(w, r, err)
		return
	}
	stream, begin, err := s.monitor.hub.subscribe(r.Header.Get("Last-Event-ID"))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer s.monitor.hub.unsubscribe(stream)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	beat := time.NewTicker(s.beat)
	defer beat.Stop()
	frame, open := append([]byte(": events of "+s.replica+"\n\n"), begin...), true
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
