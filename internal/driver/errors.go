package driver

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// redacted stands where a secret was.
const redacted = "(redacted)"

// toStatus is the one place where an error becomes a gRPC status. A cancelled
// call comes first: whatever else its error says, the caller is to treat it as
// one that may still have had effects. The status carries no details, as CSI
// demands ("Error Scheme"), and no secret of the request.
func toStatus(err error, secrets []string) error {
	if err == nil {
		return nil
	}
	if _, is := status.FromError(err); is {
		return err
	}
	message := err.Error()
	for _, secret := range secrets {
		message = strings.ReplaceAll(message, secret, redacted)
	}
	if message == "" {
		message = "the operation failed without saying why"
	}
	return status.Error(codeOf(err), message)
}

// codeOf maps sentinels to codes (CSI spec 1.13). An error that wraps none is a
// fault of ours: Internal.
func codeOf(err error) codes.Code {
	for _, known := range []struct {
		sentinel error
		code     codes.Code
	}{
		{context.Canceled, codes.Canceled},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{backend.ErrBusy, codes.Aborted},
		{backend.ErrStaleToken, codes.Aborted},
		{backend.ErrUnavailable, codes.Unavailable},
		{backend.ErrNoSpace, codes.ResourceExhausted},
		{backend.ErrInvalid, codes.InvalidArgument},
		{backend.ErrNotFound, codes.NotFound},
		{backend.ErrExists, codes.AlreadyExists},
		{backend.ErrInUse, codes.FailedPrecondition},
		{backend.ErrPrecondition, codes.FailedPrecondition},
		{backend.ErrOutOfRange, codes.OutOfRange},
		{backend.ErrUnsupported, codes.Unimplemented},
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
