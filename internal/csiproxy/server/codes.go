package server

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// toStatus is the one place where an error of the host becomes a gRPC status.
// It carries no secret of the request.
func toStatus(err error, secrets secrets) error {
	if err == nil {
		return nil
	}
	if given, is := status.FromError(err); is {
		return status.Error(given.Code(), secrets.scrub(given.Message()))
	}
	message := secrets.scrub(err.Error())
	if message == "" {
		message = "the operation failed without saying why"
	}
	return status.Error(codeOf(err), message)
}

// codeOf maps sentinels to codes. A cancelled call comes first, whatever else its
// error says: its caller is to treat it as one that may still have had effects.
// An error that wraps no sentinel is a fault of ours: Internal.
func codeOf(err error) codes.Code {
	for _, known := range []struct {
		sentinel error
		code     codes.Code
	}{
		{context.Canceled, codes.Canceled},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{backend.ErrInvalid, codes.InvalidArgument},
		{backend.ErrNotFound, codes.NotFound},
		{backend.ErrExists, codes.AlreadyExists},
		{backend.ErrBusy, codes.Aborted},
		{backend.ErrInUse, codes.FailedPrecondition},
		{backend.ErrPrecondition, codes.FailedPrecondition},
		{backend.ErrNoSpace, codes.ResourceExhausted},
		{backend.ErrOutOfRange, codes.OutOfRange},
		{backend.ErrUnsupported, codes.Unimplemented},
		{backend.ErrUnavailable, codes.Unavailable},
		{backend.ErrDenied, codes.PermissionDenied},
		{backend.ErrCredentials, codes.Unauthenticated},
		{backend.ErrDataLoss, codes.DataLoss},
	} {
		if errors.Is(err, known.sentinel) {
			return known.code
		}
	}
	return codes.Internal
}
