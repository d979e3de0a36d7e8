// Package statuscode maps the sentinel errors of package backend to gRPC codes,
// the same for the CSI driver (CSI spec 1.13, "Error Scheme") and for csi-proxy.
package statuscode

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Of returns the code of an error. Cancellation has priority over other errors: the
// caller must treat the call as one that may have had effects. An error that wraps no
// sentinel is a fault of ours: Internal.
func Of(err error) codes.Code {
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
