package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// maxLine bounds one event in a file. The longest are reads of whole logs.
const maxLine = 16 << 20

// Write writes one line of JSON for each event. Equal histories make equal bytes.
func (h History) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	encoder := json.NewEncoder(out)
	for _, e := range h {
		if err := encoder.Encode(e); err != nil {
			return fmt.Errorf("write the history: %w", err)
		}
	}
	return out.Flush()
}

// Parse reads what Write wrote. It refuses lines that are not events, fields that it does not
// know, and histories that are not valid; the error names the line.
func Parse(r io.Reader) (History, error) {
	var h History
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		decoder := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		decoder.DisallowUnknownFields()
		var e Event
		if err := decoder.Decode(&e); err != nil {
			return nil, fmt.Errorf("read the history: line %d: %w", len(h)+1, err)
		}
		if _, err := decoder.Token(); err != io.EOF {
			return nil, fmt.Errorf("read the history: line %d goes on after the event", len(h)+1)
		}
		h = append(h, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the history: line %d: %w", len(h)+1, err)
	}
	if err := h.Validate(); err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	return h, nil
}

// String is a line for people.
func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%12s  ", e.At.Round(time.Microsecond))
	switch e.Kind {
	case Invoke:
		fmt.Fprintf(&b, "client %d  #%d %s %s on %s", e.Client, e.Op, e.Call, e.Value, e.Tenant)
	case Return:
		fmt.Fprintf(&b, "client %d  #%d %s on %s: %s", e.Client, e.Op, e.Call, e.Tenant, e.Outcome)
	default:
		fmt.Fprintf(&b, "%s %s", e.Kind, e.Tenant)
	}
	if e.Epoch > 0 {
		fmt.Fprintf(&b, " at epoch %d", e.Epoch)
	}
	if e.Position > 0 {
		fmt.Fprintf(&b, ", position %d", e.Position)
	}
	if e.Kind == Return && e.Outcome == OK && (e.Call == Read || e.Call == Get) {
		fmt.Fprintf(&b, ", %d values %s", len(e.Values), abbreviate(e.Values))
	}
	if e.Kind == Commit {
		b.WriteString(" " + e.Value)
	}
	for _, more := range []string{e.Replica, e.Code, e.Text} {
		if more != "" {
			b.WriteString(" " + more)
		}
	}
	if e.Flushed {
		b.WriteString(", flushed")
	}
	if e.Within > 0 {
		fmt.Fprintf(&b, ", must serve within %v", e.Within)
	}
	return b.String()
}

// abbreviate shows the end of a long list, which is where lists differ.
func abbreviate(values []string) string {
	const shown = 4
	if len(values) <= shown {
		return strings.Join(values, " ")
	}
	return "… " + strings.Join(values[len(values)-shown:], " ")
}
