package history

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Report is what a page shows.
type Report struct {
	Title      string
	Command    string // that makes the run again
	History    History
	Violations []Violation // what [Check] returned
}

// WriteReport writes one HTML page: the verdict, the figures, the timeline of every
// tenant's owners as inline SVG, the faults and the violations. The page needs no server and no other file,
// and whatever the history holds is shown as text.
func WriteReport(w io.Writer, r Report) error {
	if err := reportTemplate.Execute(w, draw(r)); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

//go:embed report.html
var reportText string

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"short": func(d time.Duration) string { return d.Round(time.Millisecond).String() },
}).Parse(reportText))

// The measures of the drawing, in pixels.
const (
	labelWidth  = 130
	timeWidth   = 1100
	rowHeight   = 13
	epochWidth  = 7 // of one digit
	letterWidth = 5 // of the labels of faults
	shortOutage = time.Second
	colours     = 8
	maxTicks    = 12
)

// A drawing is a report in pixels.
type drawing struct {
	Report
	Summary    Summary
	Width      int
	Height     int
	FaultsTop  int
	RowsTop    int
	Ticks      []tick
	Faults     []bar
	Rows       []row
	Legend     []legend
	Shown      []Violation // at most a hundred
	ShownAbove time.Duration
}

type tick struct {
	X    float64
	Text string
}

// A bar is a stretch of time in a row.
type bar struct {
	X, Width float64
	Y        int
	Colour   int
	Label    string // inside, if it fits
	Title    string // what a pointer shows
	From, To time.Duration
}

type row struct {
	Y       int
	Name    string
	Tenures []bar
	Outages []bar
	Broken  []bar // violations
}

type legend struct {
	Colour int
	Name   string
}

// A scale turns time into pixels.
type scale struct{ end time.Duration }

func (s scale) x(at time.Duration) float64 {
	return labelWidth + timeWidth*float64(at)/float64(max(s.end, 1))
}

func (s scale) bar(from, to time.Duration) bar {
	return bar{X: s.x(from), Width: max(s.x(to)-s.x(from), 1), From: from, To: to}
}

func draw(r Report) drawing {
	d := drawing{Report: r, Summary: Summarize(r.History), Width: labelWidth + timeWidth + 20, FaultsTop: 24, ShownAbove: shortOutage}
	var s scale
	if n := len(r.History); n > 0 {
		s.end = r.History[n-1].At
	}
	d.Ticks = s.ticks()
	lanes := d.drawFaults(s)
	d.RowsTop = d.FaultsTop + (lanes+1)*rowHeight
	palette := make(map[string]int)
	for i, t := range byTenant(r.History) {
		d.Rows = append(d.Rows, d.drawTenant(s, t, i, palette))
	}
	for name, colour := range palette {
		d.Legend = append(d.Legend, legend{Colour: colour % colours, Name: name})
	}
	slices.SortFunc(d.Legend, func(a, b legend) int { return strings.Compare(a.Name, b.Name) })
	d.Height = d.RowsTop + len(d.Rows)*rowHeight + 10
	d.Shown = r.Violations[:min(len(r.Violations), 100)]
	return d
}

// ticks are at round times, few enough to be read.
func (s scale) ticks() []tick {
	step := max(s.end/maxTicks, 1)
	for _, round := range []time.Duration{
		time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second, 15 * time.Second,
		time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour,
	} {
		if round >= step {
			step = round
			break
		}
	}
	var all []tick
	for at := time.Duration(0); at <= s.end; at += step {
		all = append(all, tick{X: s.x(at), Text: at.String()})
	}
	return all
}

// drawFaults puts faults that overlap into lanes below each other and returns how many
// lanes there are.
func (d *drawing) drawFaults(s scale) int {
	var free []time.Duration // when each lane's last fault ends
	for i, e := range d.History {
		if e.Kind != Fault {
			continue
		}
		to := s.end
		for _, later := range d.History[i+1:] {
			if later.Kind == Healed || later.Kind == Heal && later.Text == e.Text && later.Replica == e.Replica {
				to = later.At
				break
			}
		}
		lane := slices.IndexFunc(free, func(at time.Duration) bool { return at <= e.At })
		if lane < 0 {
			lane = len(free)
			free = append(free, 0)
		}
		b := s.bar(e.At, to)
		b.Y = d.FaultsTop + lane*rowHeight
		b.Label = strings.TrimSpace(e.Text + " " + e.Replica)
		// The label may need more room than the fault took.
		free[lane] = max(to, e.At+time.Duration(float64(s.end)/timeWidth*float64(letterWidth*(len(b.Label)+2))))
		b.Title = fmt.Sprintf("%s, from %v to %v", b.Label, e.At.Round(time.Millisecond), to.Round(time.Millisecond))
		d.Faults = append(d.Faults, b)
	}
	return len(free)
}

func (d *drawing) drawTenant(s scale, t *tenantHistory, i int, palette map[string]int) row {
	r := row{Y: d.RowsTop + i*rowHeight, Name: t.name}
	if _, last, ok := strings.Cut(t.name, "/"); ok && len(last) > 12 {
		r.Name = "…" + last[len(last)-12:]
	}
	for j, g := range t.grants {
		to := s.end
		if j+1 < len(t.grants) {
			to = t.grants[j+1].At
		}
		if e := slices.IndexFunc(t.ends, func(e seen) bool { return e.Epoch == g.Epoch && e.At < to }); e >= 0 {
			to = t.ends[e].At
		}
		b := s.bar(g.At, to)
		b.Y = r.Y
		b.Colour = colourOf(palette, g.Replica)
		b.Title = fmt.Sprintf("%s: epoch %d, %s, from %v to %v", t.name, g.Epoch, g.Replica, g.At.Round(time.Millisecond), to.Round(time.Millisecond))
		if label := strconv.FormatUint(uint64(g.Epoch), 10); b.Width > float64(epochWidth*len(label)) {
			b.Label = label
		}
		r.Tenures = append(r.Tenures, b)
	}
	for _, o := range t.outages(s.end) {
		if o.Length() >= shortOutage {
			b := s.bar(o.From, o.To)
			b.Y = r.Y + rowHeight - 4
			b.Title = fmt.Sprintf("%s: nobody answered for %v from %v", t.name, o.Length().Round(time.Millisecond), o.From.Round(time.Millisecond))
			r.Outages = append(r.Outages, b)
		}
	}
	for _, v := range d.Violations {
		if v.Tenant == t.name {
			b := s.bar(v.At, v.At)
			b.Y, b.Title = r.Y, fmt.Sprintf("%s: %s", v.Invariant, v.Text)
			r.Broken = append(r.Broken, b)
		}
	}
	return r
}

// colourOf gives the incarnations of one replica one colour: their ids differ after the
// last dash.
func colourOf(palette map[string]int, replica string) int {
	name := replica
	if i := strings.LastIndex(name, "-"); i > 0 {
		name = name[:i]
	}
	colour, ok := palette[name]
	if !ok {
		colour = len(palette)
		palette[name] = colour
	}
	return colour % colours
}
