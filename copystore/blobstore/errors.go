package blobstore

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	"gocloud.dev/gcerrors"
)

// isTaken reports whether a conditional write was refused because the name is
// taken.
func isTaken(err error) bool {
	if code, ok := apiCode(err); ok {
		return code == "PreconditionFailed" || status(err) == http.StatusPreconditionFailed
	}
	return gcerrors.Code(err) == gcerrors.FailedPrecondition
}

// isAbsent reports whether there is no object of the name. That the bucket itself
// is gone, or that the object has to be brought back from an archive, is
// something else: it must not make a restore pass the object over.
func isAbsent(err error) bool {
	if code, ok := apiCode(err); ok {
		return code == "NoSuchKey" || code == "NotFound"
	}
	return gcerrors.Code(err) == gcerrors.NotFound
}

// isGone reports whether an upload in parts is not there any more: it was aborted,
// or completed by a request whose answer was lost.
func isGone(err error) bool {
	code, _ := apiCode(err)
	return code == "NoSuchUpload"
}

// apiCode returns S3's own code, and false for errors that are not S3's.
func apiCode(err error) (string, bool) {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode(), true
	}
	return "", false
}

func status(err error) int {
	var response *awshttp.ResponseError
	if errors.As(err, &response) {
		return response.HTTPStatusCode()
	}
	return 0
}

// explain names the call, and lets the end of ctx be recognised whatever the
// client made of it.
func explain(ctx context.Context, op, name string, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w: %w", ended, err)
	}
	return fmt.Errorf("%s %s: %w", op, name, err)
}
