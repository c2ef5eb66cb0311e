package etcdlease

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leaseholddb/leasehold/coord"
)

var (
	// errLeaseGone means that the etcd lease a request relied on has ended.
	errLeaseGone = errors.New("the etcd lease has ended")
	errNoAnswer  = errors.New("etcd did not answer in time")
	errClosed    = errors.New("the lease store is closed")
	errContended = errors.New("other writers kept interfering")
	// errUnsettled means that an earlier attempt on the key could not be settled.
	errUnsettled = errors.New("an earlier acquisition is not settled yet")
	// errStaleToken means that a stream outlived the token that it was opened with.
	errStaleToken = errors.New("etcd no longer knows the token of the stream")
	// errHandedBack means that a grant was made and given up again.
	errHandedBack = errors.New("the grant could not be covered by a keepalive")
)

// fail is the only place where an error of etcd becomes one of ours. Errors that
// have a code already pass through.
func fail(ctx context.Context, op string, key coord.Key, err error) error {
	if err == nil || coord.CodeOf(err) != "" {
		return err
	}
	err = rpctypes.Error(err)
	if !unavailable(err) {
		return fmt.Errorf("etcdlease: %s: %w", op, err)
	}
	e := &coord.Error{Code: coord.CodeLeaseStoreUnavailable, Op: op, Key: key, Err: err, Hint: hint(err)}
	switch {
	case ctx.Err() != nil:
		// The caller tests for its own context, and gRPC renames that error.
		e.Err = context.Cause(ctx)
		if !errors.Is(e.Err, ctx.Err()) {
			e.Err = errors.Join(ctx.Err(), e.Err)
		}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		// A request's own timeout: the caller's context is intact and must not
		// seem to have ended.
		e.Err = errNoAnswer
	}
	return e
}

// unavailable reports whether err means that etcd could not be asked, did not
// answer, or refuses this client for now.
func unavailable(err error) bool {
	for _, own := range []error{errLeaseGone, errNoAnswer, errClosed, errContended, errUnsettled, errHandedBack, errStaleToken, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, own) {
			return true
		}
	}
	if authProblem(err) {
		return true
	}
	switch code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted, codes.Aborted,
		codes.Internal, codes.DataLoss, codes.NotFound:
		return true
	case codes.FailedPrecondition:
		return errors.Is(err, rpctypes.ErrNotLeader) || errors.Is(err, rpctypes.ErrNotCapable)
	case codes.OutOfRange:
		return errors.Is(err, rpctypes.ErrCompacted) || errors.Is(err, rpctypes.ErrFutureRev)
	default:
		return false
	}
}

func authProblem(err error) bool {
	switch code(err) {
	case codes.Unauthenticated, codes.PermissionDenied:
		return true
	case codes.InvalidArgument, codes.FailedPrecondition:
		for _, auth := range []error{rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty, rpctypes.ErrAuthOldRevision, rpctypes.ErrAuthNotEnabled} {
			if errors.Is(err, auth) {
				return true
			}
		}
	}
	return false
}

func hint(err error) string {
	switch {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return "etcd's space quota is used up: compact and defragment it, then disarm the alarm, or raise the quota"
	case errors.Is(err, rpctypes.ErrAuthNotEnabled):
		return "etcd has authentication switched off: configure no user, or switch it on"
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return "the etcd user needs read and write permission on the prefix"
	case authProblem(err):
		return "check the etcd user and password"
	default:
		return ""
	}
}

// unclear reports whether a write that ended with err may have been applied, or
// may yet be. etcd's own refusals are clear; everything that merely says that no
// answer was heard is not.
func unclear(err error) bool {
	err = rpctypes.Error(err)
	var refused rpctypes.EtcdError
	if errors.As(err, &refused) {
		return refused.Code() == codes.Unavailable || refused.Code() == codes.DataLoss
	}
	return true
}

func isLeaseGone(err error) bool {
	return errors.Is(err, errLeaseGone) || errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound)
}

func code(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}

func lost(op string, key coord.Key, why string) error {
	return &coord.Error{Code: coord.CodeLeaseLost, Op: op, Key: key, Detail: why}
}
