package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// readBody reads the whole body, within the server's bounds. The read deadline
// was set when the request arrived; net/http lifts it when nothing is left to read.
func (s *Server) readBody(r *http.Request) ([]byte, error) {
	limit := s.opts.MaxBody
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, refuse(CodeBodyTimeout, fmt.Sprintf("the body did not arrive within %v", s.opts.BodyTimeout))
	case err != nil:
		return nil, refuse(CodeRequestInvalid, "the body ended early")
	case int64(len(body)) > limit:
		return nil, tooLarge(limit)
	}
	return body, nil
}

func tooLarge(limit int64) error {
	return refuse(CodeBodyTooLarge, fmt.Sprintf("a body may have at most %d bytes", limit))
}

// decode reads one JSON value into v and refuses everything else: unknown
// members, more than one value, bytes that are not UTF-8 and would be replaced.
func decode(body []byte, v any) error {
	if !utf8.Valid(body) {
		return refuse(CodeRequestInvalid, "the body is not UTF-8")
	}
	if hasLoneSurrogate(body) {
		return refuse(CodeRequestInvalid, "the body has an escape of half a character")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return refuse(CodeRequestInvalid, "the body is not the JSON that this endpoint takes: "+jsonProblem(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return refuse(CodeRequestInvalid, "the body has something after the JSON value")
	}
	return nil
}

// hasLoneSurrogate finds \u escapes of a surrogate that has no partner. Decoding
// replaces each by the same character, so different keys would become one.
func hasLoneSurrogate(body []byte) bool {
	var high bool // the last character was an escaped high surrogate
	for i := 0; i < len(body); i++ {
		if body[i] != '\\' || i+1 >= len(body) {
			if high {
				return true
			}
			continue
		}
		i++
		r := utf16Escape(body[i:])
		switch {
		case utf16.IsSurrogate(r) && r >= 0xdc00: // low
			if !high {
				return true
			}
			high = false
		case high:
			return true
		default:
			high = utf16.IsSurrogate(r)
		}
		if r >= 0 {
			i += len("u0000") - 1
		}
	}
	return high
}

// utf16Escape reads u and four hex digits; -1 if s begins with anything else.
func utf16Escape(s []byte) rune {
	if len(s) < len("u0000") || s[0] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(s[1:5]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}

// decodeOptional is decode for bodies that may be left out.
func decodeOptional(body []byte, v any) error {
	if len(body) == 0 {
		return nil
	}
	return decode(body, v)
}

func jsonProblem(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it ends too early"
	}
	return err.Error()
}

// write sends v as JSON. The client has WriteTimeout to take it.
func (s *Server) write(w http.ResponseWriter, status int, v any) { s.send(w, status, encode(v)) }

func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		// Every value that can come here is encodable; a new one that is not must
		// not go out as half a reply.
		panic(fmt.Errorf("httpapi: encode a reply: %w", err))
	}
	return b.Bytes()
}

func (s *Server) send(w http.ResponseWriter, status int, body []byte) {
	s.prepareSending(w)
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has gone needs no reply
}

func (s *Server) prepareSending(w http.ResponseWriter) {
	s.limitWriting(w)
	h := w.Header()
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	h.Set("Cache-Control", "no-store")
}

// limitWriting bounds how long the client may take to read what is written now.
func (s *Server) limitWriting(w http.ResponseWriter) {
	// Writers of tests have no deadlines; a connection that has gone has none to set.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.opts.WriteTimeout))
}
