package model

import "fmt"

// trace repeats the steps from the start to a node and tells them.
func (s *search) trace(to int32) []string {
	var path []uint8
	for ; s.nodes[to].parent >= 0; to = s.nodes[to].parent {
		path = append(path, s.nodes[to].step)
	}
	var lines []string
	var at state
	again := machine{Config: s.Config}
	for i := len(path) - 1; i >= 0; i-- {
		n := uint8(0)
		var taken move
		var after state
		again.emit = func(mv move, next *state) {
			if n == path[i] {
				taken, after = mv, *next
			}
			n++
		}
		again.next(&at)
		lines = append(lines, taken.tell(&at, &after))
		at = after
	}
	return lines
}

// tell puts a step into a line.
func (mv move) tell(from, to *state) string {
	who := "lease store"
	switch {
	case mv.kind == readNewest || mv.kind == raiseEpoch || mv.kind == clearMark:
		who = "operator"
	case mv.kind == corrupt || mv.kind == lose || mv.kind == remove:
		who = "copy store"
	case mv.tenure > 0 && mv.kind != acquire:
		who = fmt.Sprintf("tenure %d", mv.tenure)
	}
	line := who + ": " + kindNames[mv.kind]
	if detail := mv.detail(from, to); detail != "" {
		line += " " + detail
	}
	return line + mv.outcome(to)
}

func (mv move) detail(from, to *state) string {
	if mv.tenure == 0 {
		return mv.surroundings()
	}
	was, is := from.owner(mv.tenure), to.owner(mv.tenure)
	switch mv.kind {
	case acquire:
		return fmt.Sprintf("epoch %d for tenure %d, forgotten up to %d", is.epoch, mv.tenure, is.floor)
	case list:
		if mv.about == 0 {
			return "and find no claimed epoch"
		}
		return fmt.Sprintf("and find e%d the newest claimed epoch", mv.about)
	case readManifest, readImage, uploadImage, writeManifest, proveManifest:
		return ref(mv.about).String()
	case readOrigin:
		return fmt.Sprintf("of e%d", mv.about)
	case claim:
		if mv.about == 0 {
			return fmt.Sprintf("e%d, started from nothing", was.epoch)
		}
		return fmt.Sprintf("e%d, started from %s", was.epoch, ref(mv.about))
	case retain, forget, sweep:
		return object(mv.about)
	}
	return ""
}

func (mv move) outcome(to *state) string {
	if mv.tenure == 0 {
		return ""
	}
	switch o := to.owner(mv.tenure); {
	case o.at == atDead:
		return "; it does nothing more"
	case o.at == atStuck:
		return "; it is refused"
	case o.at == atServe && mv.kind == proveClaim:
		return "; it serves a ledger with " + o.content.String()
	}
	return ""
}

func (mv move) surroundings() string {
	switch mv.kind {
	case corrupt, lose, remove:
		return object(mv.about)
	case rollBack:
		return fmt.Sprintf("to a backup in which epoch %d was the latest", mv.about)
	case forgetLease:
		return fmt.Sprintf("of tenure %d", mv.about)
	case raiseEpoch:
		return fmt.Sprintf("above %d", mv.about)
	}
	return ""
}

// object names what damage and deletions are about.
func object(about uint8) string {
	switch {
	case about > originAt:
		return fmt.Sprintf("e%d/origin", about-originAt)
	case about > copyAt:
		return ref(about - copyAt).String()
	case about > imageAt:
		return ref(about-imageAt).String() + ", its image"
	}
	return ref(about-manifestAt).String() + ", its manifest"
}
