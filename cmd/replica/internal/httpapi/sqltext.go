package httpapi

import (
	"slices"
	"strings"

	"github.com/leaseholddb/leasehold/coord"
)

// oneStatement refuses text that would end or nest the transaction in which exec
// runs it, and text of several statements, which could hide such a one. Nothing
// rests on it but the promise that exec does everything or nothing: what a
// statement may touch is for the guard of the database to decide.
func oneStatement(text string) error {
	parts := splitStatements(text)
	if len(parts) == 0 {
		return nil
	}
	switch parts[0][0] {
	case "BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE", "VACUUM":
		return refuse(coord.CodeSQLRefused, "exec is one transaction by itself; "+parts[0][0]+" is not allowed in it")
	}
	if !createsTrigger(parts[0]) {
		if len(parts) > 1 {
			return several()
		}
		return nil
	}
	for i, part := range parts[1:] {
		last := i == len(parts)-2
		switch part[0] {
		case "INSERT", "REPLACE", "UPDATE", "DELETE", "SELECT", "WITH", "VALUES":
		case "END":
			if !last {
				return several()
			}
		default:
			return several()
		}
	}
	return nil
}

func several() error {
	return refuse(coord.CodeSQLRefused, "sql must be one statement; send several as several")
}

func createsTrigger(words []string) bool {
	return words[0] == "CREATE" && slices.Contains(words[:min(len(words), 3)], "TRIGGER")
}

// splitStatements returns the words of each part between semicolons that has
// any, in upper case, without what is in quotes or comments. A part of other
// tokens only counts as one word.
func splitStatements(text string) (parts [][]string) {
	var words []string
	flush := func() {
		if len(words) > 0 {
			parts, words = append(parts, words), nil
		}
	}
	for text != "" {
		n := tokenLength(text)
		token := text[:n]
		text = text[n:]
		switch {
		case token == ";":
			flush()
		case isBlank(token):
		default:
			words = append(words, strings.ToUpper(token))
		}
	}
	flush()
	return parts
}

const byteOrderMark = "\ufeff" // which SQLite skips

func isBlank(token string) bool {
	return token == byteOrderMark || strings.HasPrefix(token, "--") || strings.HasPrefix(token, "/*") || strings.Trim(token, " \t\r\n\f") == ""
}

// tokenLength is the length of the token that text, which is not empty, begins
// with.
func tokenLength(text string) int {
	switch c := text[0]; {
	case strings.HasPrefix(text, byteOrderMark):
		return len(byteOrderMark)
	case strings.HasPrefix(text, "--"):
		return through(text, 2, "\n")
	case strings.HasPrefix(text, "/*"):
		return through(text, 2, "*/")
	case c == '\'' || c == '"' || c == '`':
		return through(text, 1, string(c))
	case c == '[':
		return through(text, 1, "]")
	case isWordByte(c):
		for i := range len(text) {
			if !isWordByte(text[i]) {
				return i
			}
		}
		return len(text)
	default:
		return 1
	}
}

// through is the length of text up to and with the next end behind the first
// skip bytes, or all of it.
func through(text string, skip int, end string) int {
	if i := strings.Index(text[skip:], end); i >= 0 {
		return skip + i + len(end)
	}
	return len(text)
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
}
