package model

import "hash/maphash"

// A Result is what a search found.
type Result struct {
	States    int            // that were visited
	Violation string         // what went wrong; empty if nothing did
	Trace     []string       // the shortest way there, a line for each step
	Steps     map[string]int // how often a step was tried, by its name
	Healed    int            // how often a tenure began to serve after a rollback was found and dealt with
}

// Check visits every state that cfg allows, nearest first, until it finds a
// violation. Equal configurations give equal results. States are told apart by 128
// bits of hash. It panics if cfg is not valid.
func Check(cfg Config) Result {
	if err := cfg.Validate(); err != nil {
		panic("model: " + err.Error())
	}
	s := search{machine: machine{Config: cfg}, seen: make(map[fingerprint]struct{}), seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	s.machine.emit = s.visit
	return s.run()
}

type fingerprint [2]uint64

// A node says how a state was reached: by which of the steps from its parent.
type node struct {
	parent int32
	step   uint8
}

type search struct {
	machine
	seen     map[fingerprint]struct{}
	seeds    [2]maphash.Seed
	nodes    []node
	frontier []state // states of the nodes that come next
	parent   int32   // of what is emitted
	step     uint8
	bad      string
	counts   [kinds]int
	healed   int
}

func (s *search) run() Result {
	var start state
	s.add(&start, node{parent: -1})
	done := int32(0)
	for len(s.frontier) > 0 && s.bad == "" {
		level := s.frontier
		s.frontier = make([]state, 0, len(level)*2)
		for i := range level {
			s.parent, s.step = done, 0
			done++
			s.next(&level[i])
			if s.bad != "" {
				break
			}
		}
	}
	return s.result(int(done))
}

func (s *search) visit(mv move, n *state) {
	s.counts[mv.kind]++
	if mv.kind == proveClaim && n.healed && n.owner(mv.tenure).at == atServe {
		s.healed++
	}
	if s.bad == "" {
		from := node{s.parent, s.step}
		s.add(n, from)
		if s.verdict != "" {
			s.bad = s.verdict
			s.nodes = append(s.nodes, from)
		}
	}
	s.step++
}

func (s *search) add(n *state, from node) {
	f := fingerprint{maphash.Comparable(s.seeds[0], *n), maphash.Comparable(s.seeds[1], *n)}
	if _, known := s.seen[f]; known {
		return
	}
	s.seen[f] = struct{}{}
	s.nodes = append(s.nodes, from)
	s.frontier = append(s.frontier, *n)
}

func (s *search) result(states int) Result {
	r := Result{States: states, Violation: s.bad, Healed: s.healed, Steps: make(map[string]int)}
	for k, n := range s.counts {
		r.Steps[kindNames[k]] = n
	}
	if s.bad != "" {
		r.Trace = s.trace(int32(len(s.nodes) - 1))
	}
	return r
}
