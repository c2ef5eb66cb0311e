package httpapi

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"

	"github.com/leaseholddb/leasehold/coord"
	"github.com/leaseholddb/leasehold/fencing"
	"github.com/leaseholddb/leasehold/router"
)

const (
	// maxRows and maxResultBytes bound the result of a query; the bytes are those
	// of its values.
	maxRows        = 10_000
	maxResultBytes = 8 << 20
)

type statement struct {
	SQL  string     `json:"sql"`
	Args []argument `json:"args"`
}

func (s statement) validate() error {
	if s.SQL == "" {
		return refuse(CodeRequestInvalid, "sql is empty")
	}
	return nil
}

func (s statement) args() []any {
	args := make([]any, len(s.Args))
	for i, a := range s.Args {
		args[i] = a.value
	}
	return args
}

type queryReply struct {
	Columns []string  `json:"columns"`
	Rows    [][]value `json:"rows"`
	// Truncated says that there were more rows than one reply may have.
	Truncated bool `json:"truncated"`
}

func (s *Server) prepareQuery(in input) (work, error) {
	var want statement
	if err := in.decode(decode, &want); err != nil {
		return nil, err
	}
	if err := want.validate(); err != nil {
		return nil, err
	}
	return func(ctx context.Context, h *router.Handle) (answer reply, err error) {
		err = h.Run(ctx, func(ctx context.Context, v *router.View) error {
			result, err := query(ctx, v.DB(), want)
			answer = reply{http.StatusOK, h.Epoch(), result}
			return err
		})
		return answer, err
	}, nil
}

func query(ctx context.Context, db *sql.DB, want statement) (queryReply, error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return queryReply{}, err
	}
	defer tx.Rollback()
	rows, err := tx.QueryContext(ctx, want.SQL, want.args()...)
	if err != nil {
		return queryReply{}, sqlProblem(err)
	}
	defer rows.Close()
	result, err := collect(rows)
	return result, sqlProblem(err)
}

func collect(rows *sql.Rows) (queryReply, error) {
	columns, err := rows.Columns()
	if err != nil {
		return queryReply{}, err
	}
	result := queryReply{Columns: columns, Rows: [][]value{}}
	for size := 0; rows.Next(); {
		if len(result.Rows) == maxRows || size > maxResultBytes {
			result.Truncated = true
			return result, nil
		}
		row := make([]value, len(columns))
		into := make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return queryReply{}, err
		}
		for _, v := range row {
			size += v.size()
		}
		result.Rows = append(result.Rows, row)
	}
	return result, rows.Err()
}

type execResult struct {
	RowsAffected int64 `json:"rows_affected"`
	LastInsertID int64 `json:"last_insert_id"`
}

type execReply struct {
	Results []execResult `json:"results"`
}

func (s *Server) prepareExec(in input) (work, error) {
	var want struct {
		Statements []statement `json:"statements"`
	}
	if err := in.decode(decode, &want); err != nil {
		return nil, err
	}
	if len(want.Statements) == 0 {
		return nil, refuse(CodeRequestInvalid, "statements is empty")
	}
	for _, st := range want.Statements {
		if err := st.validate(); err != nil {
			return nil, err
		}
		if err := oneStatement(st.SQL); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context, h *router.Handle) (answer reply, err error) {
		err = h.Run(ctx, func(ctx context.Context, v *router.View) error {
			result, err := exec(ctx, v.DB(), want.Statements)
			answer = reply{http.StatusOK, h.Epoch(), result}
			return err
		})
		return answer, err
	}, nil
}

// exec runs all statements in one transaction, or none.
func exec(ctx context.Context, db *sql.DB, statements []statement) (execReply, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return execReply{}, err
	}
	defer tx.Rollback()
	result := execReply{Results: make([]execResult, 0, len(statements))}
	for i, st := range statements {
		r, err := tx.ExecContext(ctx, st.SQL, st.args()...)
		if err != nil {
			return execReply{}, inStatement(i, sqlProblem(err))
		}
		// The driver has both at hand; neither can fail.
		affected, _ := r.RowsAffected()
		last, _ := r.LastInsertId()
		result.Results = append(result.Results, execResult{affected, last})
	}
	err = sqlProblem(tx.Commit())
	if errors.Is(err, fencing.ErrTxAborted) && codeOf(err) == CodeInternal {
		// Something ended the transaction before its time, and whether by a commit
		// or a rollback is not known here.
		err = &coord.OutcomeUnknownError{Cause: err}
	}
	return result, err
}

func inStatement(i int, err error) error {
	var e *coord.Error
	if errors.As(err, &e) && e.Code == CodeSQLFailed {
		e.Detail = fmt.Sprintf("statement %d: %s", i+1, e.Detail)
	}
	return err
}

// sqlProblem gives what is the statement's fault its code.
func sqlProblem(err error) error {
	if message, ok := fencing.SQLErrorOf(err); ok {
		return refuse(CodeSQLFailed, message)
	}
	return err
}
