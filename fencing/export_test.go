package fencing

import (
	"database/sql/driver"
	"reflect"

	"github.com/mattn/go-sqlite3"
)

// CheckSQLiteVersion lets a test ask about versions other than the linked one.
var CheckSQLiteVersion = checkSQLiteVersion

// DriverPairs returns each wrapper beside what it wraps.
func DriverPairs() map[string][2]any {
	return map[string][2]any{
		"connection": {&conn{}, &sqlite3.SQLiteConn{}}, "statement": {&stmt{}, &sqlite3.SQLiteStmt{}},
		"rows": {&rows{}, &sqlite3.SQLiteRows{}}, "transaction": {&tx{}, &sqlite3.SQLiteTx{}},
	}
}

// DriverInterfaces returns the interfaces that database/sql looks for.
func DriverInterfaces() []reflect.Type {
	return []reflect.Type{
		reflect.TypeFor[driver.Conn](), reflect.TypeFor[driver.ConnPrepareContext](), reflect.TypeFor[driver.ConnBeginTx](),
		reflect.TypeFor[interface {
			Exec(string, []driver.Value) (driver.Result, error)
		}](),
		reflect.TypeFor[driver.ExecerContext](),
		reflect.TypeFor[interface {
			Query(string, []driver.Value) (driver.Rows, error)
		}](),
		reflect.TypeFor[driver.QueryerContext](), reflect.TypeFor[driver.Pinger](), reflect.TypeFor[driver.SessionResetter](),
		reflect.TypeFor[interface {
			ColumnConverter(int) driver.ValueConverter
		}](),
		reflect.TypeFor[driver.Validator](), reflect.TypeFor[driver.NamedValueChecker](), reflect.TypeFor[driver.Stmt](),
		reflect.TypeFor[driver.StmtExecContext](), reflect.TypeFor[driver.StmtQueryContext](), reflect.TypeFor[driver.Rows](),
		reflect.TypeFor[driver.RowsNextResultSet](), reflect.TypeFor[driver.RowsColumnTypeDatabaseTypeName](),
		reflect.TypeFor[driver.RowsColumnTypeLength](), reflect.TypeFor[driver.RowsColumnTypeNullable](),
		reflect.TypeFor[driver.RowsColumnTypePrecisionScale](), reflect.TypeFor[driver.RowsColumnTypeScanType](),
		reflect.TypeFor[driver.Tx](), reflect.TypeFor[driver.Result](),
	}
}

// BirthTime is how a file is told from another of the same number.
var BirthTime = birthTime
