package fencing

import (
	"slices"
	"strings"
)

// What a text says is only ever a hint: the authorizer, which SQLite asks about what
// a statement does, is the guard. It is not asked again about a statement that is
// compiled already, and it cannot say who should wait in line.

// writeWords begin the statements that write. The list decides only who waits in
// line; see claimWriter.
var writeWords = [...]string{"INSERT", "UPDATE", "DELETE", "REPLACE", "CREATE", "DROP", "ALTER"}

func looksLikeWrite(text string) bool {
	word, _ := firstWord(text)
	if word == "SELECT" || len(word) < 4 {
		return false // sooner
	}
	for _, w := range writeWords {
		if strings.EqualFold(word, w) {
			return true
		}
	}
	return false
}

// mayWrite reports whether a text that does not look like a write can be one.
func mayWrite(text string) bool {
	word, _ := firstWord(text)
	if !strings.EqualFold(word, "WITH") {
		return false
	}
	text = strings.ToUpper(text)
	return slices.ContainsFunc(writeWords[:], func(w string) bool { return strings.Contains(text, w) })
}

// mentionsReturning reports whether text can be of a statement that returns what it writes.
func mentionsReturning(text string) bool { return strings.Contains(strings.ToUpper(text), "RETURNING") }

// A txVerb is what a text does to the transaction as a whole.
type txVerb int

const (
	txNothing txVerb = iota
	txBegin
	txCommit
	txRollback
)

// txVerbOf judges a text by its first statement. Savepoints, going back to one
// included, leave the transaction as it is.
func txVerbOf(text string) txVerb {
	word, rest := firstWord(text)
	switch {
	case strings.EqualFold(word, "BEGIN"):
		return txBegin
	case strings.EqualFold(word, "COMMIT"), strings.EqualFold(word, "END"):
		return txCommit
	case !strings.EqualFold(word, "ROLLBACK"):
		return txNothing
	}
	next, rest := firstWord(rest)
	if strings.EqualFold(next, "TRANSACTION") {
		next, _ = firstWord(rest)
	}
	if strings.EqualFold(next, "TO") {
		return txNothing
	}
	return txRollback
}

// firstWord returns the letters that text begins with, after white space, comments
// and empty statements, and what follows them.
func firstWord(text string) (word, rest string) {
	for {
		for text != "" && isGap(text[0]) {
			text = text[1:]
		}
		var found bool
		switch {
		case strings.HasPrefix(text, "--"):
			_, text, found = strings.Cut(text, "\n")
		case strings.HasPrefix(text, "/*"):
			_, text, found = strings.Cut(text[2:], "*/")
		default:
			n := 0
			for n < len(text) && isLetter(text[n]) {
				n++
			}
			return text[:n], text[n:]
		}
		if !found {
			return "", ""
		}
	}
}

func isGap(c byte) bool {
	return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f' || c == ';'
}

func isLetter(c byte) bool { c |= 0x20; return 'a' <= c && c <= 'z' }
