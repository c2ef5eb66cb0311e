package sim

import (
	"slices"
	"time"
)

// A choice is one thing that may happen next.
type choice struct {
	op      *op
	timer   *timer
	landing int // index into late, or -1
}

func (w *world) choices() []choice {
	now := w.now()
	var all []choice
	for _, o := range w.parked {
		if o.ready <= now && w.reachable(o) {
			all = append(all, choice{op: o, landing: -1})
		}
	}
	for _, t := range w.timers {
		if t.due <= now && t.proc.runs() {
			all = append(all, choice{timer: t, landing: -1})
		}
	}
	for i, l := range w.late {
		if l.at <= now {
			all = append(all, choice{landing: i})
		}
	}
	return all
}

// reachable reports whether o may go on: a request of a process that is stopped may arrive,
// but nothing wakes the process.
func (w *world) reachable(o *op) bool {
	switch {
	case o.proc == nil:
		return true
	case o.target == "":
		return o.proc.runs()
	case o.hangs, o.proc.replica.cut[o.target] > 0:
		return false
	case o.stage == answered:
		return o.proc.runs() && !o.lost
	case o.until != nil:
		return o.until()
	}
	return true
}

// choose goes on with what was going on most of the time, so that things get done, and
// otherwise with anything.
func (w *world) choose(choices []choice) choice {
	if newest := choices[len(choices)-1]; !w.calm && w.rng.IntN(2) == 0 {
		for _, c := range slices.Backward(choices) {
			if c.op != nil {
				newest = c
				break
			}
		}
		return newest
	}
	return choices[w.rng.IntN(len(choices))]
}

func (w *world) take(c choice) {
	switch {
	case c.timer != nil:
		w.timers = slices.DeleteFunc(w.timers, func(t *timer) bool { return t == c.timer })
		w.logf("timer %s %s", c.timer.proc.id, c.timer.site)
		if c.timer.fire != nil {
			c.timer.fire()
			return
		}
		c.timer.c <- time.Time{}
	case c.op != nil:
		w.advance(c.op)
	default:
		l := w.late[c.landing]
		w.late = slices.Delete(w.late, c.landing, c.landing+1)
		w.logf("lands late: %s", l.what)
		w.lastHarm = w.now()
		l.apply()
	}
}

// advance takes o one stage further.
func (w *world) advance(o *op) {
	if o.target != "" && o.stage == waiting {
		o.stage = answered
		if w.spoil(o) {
			return
		}
		w.logf("apply %s %s %s", o.procID(), o.site, o.detail)
		o.apply()
		return
	}
	w.logf("go on %s %s %s", o.procID(), o.site, o.detail)
	w.wake(slices.Index(w.parked, o))
}

// passTime lets the time come at which something can happen, or a part of it.
func (w *world) passTime(idle bool) {
	now := w.now()
	next, known := w.nextMoment(now)
	d := time.Millisecond + w.upTo(w.cfg.TTL)
	if known && (idle || next-now < d) {
		d = next - now
	}
	w.logf("%v pass", d)
	time.Sleep(d)
}

func (w *world) nextMoment(now time.Duration) (time.Duration, bool) {
	next, known := time.Duration(0), false
	consider := func(at time.Duration) {
		if at > now && (!known || at < next) {
			next, known = at, true
		}
	}
	for _, o := range w.parked {
		consider(o.ready)
	}
	for _, t := range w.timers {
		consider(t.due)
	}
	for _, l := range w.late {
		consider(l.at)
	}
	for _, h := range w.healing {
		consider(h.at)
	}
	return next, known
}
