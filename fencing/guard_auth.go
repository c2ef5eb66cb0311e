package fencing

import (
	"strings"

	"github.com/mattn/go-sqlite3"
)

// A pragmaUse is what a consumer may do with a pragma.
type pragmaUse int

const (
	pragmaRefused pragmaUse = iota
	pragmaRead              // read it, and not set it
	pragmaKeys              // foreign_keys; see foreignKeys
	pragmaFree              // give it any argument
)

// usePragma knows the pragmas that are allowed; every other is refused, those of a
// later SQLite included.
func usePragma(name string) pragmaUse {
	switch name {
	// They report, or they do something that neither outlives the transaction nor
	// touches what copies depend on. page_size is here because full-text tables ask
	// for it; setting it on a database in WAL mode has no effect.
	case "table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo",
		"foreign_key_list", "foreign_key_check", "database_list", "collation_list", "function_list",
		"module_list", "pragma_list", "compile_options", "data_version", "page_count",
		"freelist_count", "page_size", "integrity_check", "quick_check", "optimize", "defer_foreign_keys":
		return pragmaFree
	case "application_id", "auto_vacuum", "automatic_index", "busy_timeout", "cache_size", "cell_size_check",
		"encoding", "ignore_check_constraints", "journal_mode", "journal_size_limit",
		"locking_mode", "max_page_count", "mmap_size", "query_only", "recursive_triggers",
		"schema_version", "secure_delete", "synchronous", "temp_store", "trusted_schema",
		"user_version", "wal_autocheckpoint", "writable_schema":
		return pragmaRead
	case "foreign_keys":
		return pragmaKeys
	}
	return pragmaRefused
}

// authorize is SQLite's authorizer of one connection. It runs while a statement is
// compiled, on the goroutine whose call compiles it. SQLite tells it what the
// statement would do, so no spelling hides anything from it.
func (r *rawConn) authorize(op int, arg1, arg2, arg3 string) int {
	// Reads must not touch r: interrupt compiles on another goroutine.
	if op == sqlite3.SQLITE_READ || op == sqlite3.SQLITE_SELECT {
		return sqlite3.SQLITE_OK
	}
	if r.internal {
		return sqlite3.SQLITE_OK
	}
	if what := r.refusal(op, arg1, arg2); what != "" {
		r.denied = what
		return sqlite3.SQLITE_DENY
	}
	switch op {
	case sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT:
		r.ownTx = true
	case sqlite3.SQLITE_CREATE_TEMP_TABLE, sqlite3.SQLITE_CREATE_TEMP_VIEW,
		sqlite3.SQLITE_CREATE_TEMP_TRIGGER, sqlite3.SQLITE_CREATE_TEMP_INDEX:
		r.spoiled = true
	case sqlite3.SQLITE_CREATE_TABLE, sqlite3.SQLITE_CREATE_VTABLE:
		// A temporary object shadows one of the same name for whoever uses
		// the connection next.
		r.spoiled = r.spoiled || strings.EqualFold(arg3, "temp")
	}
	return sqlite3.SQLITE_OK
}

// refusal names what a consumer may not do, or returns "".
func (r *rawConn) refusal(op int, arg1, arg2 string) string {
	switch op {
	case sqlite3.SQLITE_TRANSACTION:
		if r.holder != nil && r.holder.tx != nil {
			return transactionByText
		}
	case sqlite3.SQLITE_ATTACH:
		return "attaching a database or VACUUM"
	case sqlite3.SQLITE_DETACH:
		return "detaching a database"
	case sqlite3.SQLITE_FUNCTION:
		if strings.EqualFold(arg2, "load_extension") {
			return "loading an extension"
		}
	case sqlite3.SQLITE_PRAGMA:
		return r.pragmaRefusal(strings.ToLower(arg1), arg2)
	case sqlite3.SQLITE_DROP_TABLE, sqlite3.SQLITE_DROP_VTABLE:
		return r.protected("dropping", arg1)
	case sqlite3.SQLITE_DROP_TRIGGER, sqlite3.SQLITE_DROP_INDEX:
		return r.protected("dropping", arg1)
	case sqlite3.SQLITE_ALTER_TABLE:
		return r.protected("altering", arg2)
	case sqlite3.SQLITE_CREATE_TRIGGER, sqlite3.SQLITE_CREATE_TEMP_TRIGGER:
		return r.protected("a trigger on", arg2)
	}
	return ""
}

func (r *rawConn) protected(verb, name string) string {
	if r.db.protects[strings.ToLower(name)] {
		return verb + " " + name
	}
	return ""
}

// pragmaRefusal tells reading from setting. The driver hands over the same empty
// string for "PRAGMA journal_mode" and "PRAGMA journal_mode = ”", and the latter
// switches the log off; so a read of something that can be set is taken for one only
// if it is, letter for letter, the whole text of the call.
func (r *rawConn) pragmaRefusal(name, value string) string {
	switch usePragma(name) {
	case pragmaFree:
		return ""
	case pragmaRead:
		if value == "" && isBarePragma(r.sql, name) {
			return ""
		}
		return "setting PRAGMA " + name
	case pragmaKeys:
		r.keysSet = r.keysSet || !isBarePragma(r.sql, name)
		return ""
	}
	return "PRAGMA " + name
}

// isBarePragma reports whether text is nothing but "PRAGMA [main.]name[;]".
func isBarePragma(text, name string) bool {
	text = strings.TrimRight(strings.TrimSpace(text), "; \t\r\n")
	keyword, rest, ok := strings.Cut(strings.ToLower(text), " ")
	rest = strings.TrimPrefix(strings.TrimSpace(rest), "main.")
	return ok && keyword == "pragma" && rest == name
}
