package fencing

import "strings"

// What a text says is only ever a hint: the authorizer, which SQLite asks about what
// a statement does, is the guard. It is not asked again about a statement that is
// compiled already, and it cannot say who should wait in line.

// writeWords begin the statements that write, or follow the WITH that begins them.
var writeWords = [...]string{"INSERT", "UPDATE", "DELETE", "REPLACE", "CREATE", "DROP", "ALTER"}

// looksLikeWrite judges all statements of text. It decides who waits in line, see
// claimWriter, and whose result sets have something to commit.
func looksLikeWrite(text string) bool {
	word, rest := firstWord(text)
	if word == "SELECT" && strings.IndexByte(rest, ';') < 0 {
		return false // sooner
	}
	for word != "" {
		if strings.EqualFold(word, "WITH") {
			word, rest = verbAfterWith(rest)
		}
		if isWriteWord(word) {
			return true
		}
		rest = afterStatement(rest)
		word, rest = firstWord(rest)
	}
	return false
}

func isWriteWord(word string) bool {
	for _, w := range writeWords {
		if strings.EqualFold(word, w) {
			return true
		}
	}
	return false
}

// verbAfterWith returns the verb that follows the common tables, which stand in
// parentheses.
func verbAfterWith(text string) (verb, rest string) {
	for depth := 0; text != ""; {
		var token string
		before := text
		token, text = nextToken(text)
		switch {
		case token == "(":
			depth++
		case token == ")":
			depth--
		case token == ";":
			return "", before
		case depth == 0 && (strings.EqualFold(token, "SELECT") || strings.EqualFold(token, "VALUES") || isWriteWord(token)):
			return token, text
		}
	}
	return "", ""
}

// afterStatement returns what follows the statement that text is the rest of.
func afterStatement(text string) string {
	for token := ""; text != "" && token != ";"; {
		token, text = nextToken(text)
	}
	return text
}

// nextToken splits a word, a quoted thing, a comment or one other byte from text, which is
// not empty. What is not closed goes to the end.
func nextToken(text string) (token, rest string) {
	end := ""
	switch c := text[0]; {
	case c == '\'', c == '"', c == '`':
		end = text[:1]
	case c == '[':
		end = "]"
	case strings.HasPrefix(text, "--"):
		end = "\n"
	case strings.HasPrefix(text, "/*"):
		end = "*/"
	case isLetter(c):
		n := 1
		for n < len(text) && (isLetter(text[n]) || '0' <= text[n] && text[n] <= '9' || text[n] == '_') {
			n++
		}
		return text[:n], text[n:]
	default:
		return text[:1], text[1:]
	}
	begin := min(len(end), len(text)) // as long as what begins it, but for a line's end
	if n := strings.Index(text[begin:], end); n >= 0 {
		n += begin + len(end)
		return text[:n], text[n:]
	}
	return text, ""
}

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
