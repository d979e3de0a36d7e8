package remote

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/client"
)

// hostError is an error of the host as it was before its conversion to a gRPC status: its
// text, and the sentinel that it wraps.
type hostError struct {
	text string
	kind error
}

func (e *hostError) Error() string { return e.text }
func (e *hostError) Unwrap() error { return e.kind }

// translate is the reverse of the server's mapping of errors to codes.
func translate(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, client.ErrVersion):
		return fmt.Errorf("%w: %w", backend.ErrUnsupported, err)
	case errors.Is(err, client.ErrServer), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", backend.ErrDenied, err)
	case errors.Is(err, client.ErrNoProxy), errors.Is(err, client.ErrClosed):
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	answer, ok := status.FromError(err)
	if !ok {
		return fmt.Errorf("csi-proxy: %w", err)
	}
	kind := kindOf(answer)
	if cause := ctx.Err(); cause != nil && (kind == nil || errors.Is(kind, backend.ErrUnavailable)) {
		kind = cause // the connection ended because the caller left
	}
	return &hostError{text: answer.Message(), kind: kind}
}

// kindOf returns nil for a fault of the proxy, which wraps no sentinel in the proxy
// either.
func kindOf(answer *status.Status) error {
	if answer.Code() == codes.FailedPrecondition && strings.Contains(answer.Message(), backend.ErrInUse.Error()) {
		return backend.ErrInUse // two sentinels have this code; the text distinguishes them
	}
	return map[codes.Code]error{
		codes.Canceled:           context.Canceled,
		codes.DeadlineExceeded:   context.DeadlineExceeded,
		codes.InvalidArgument:    backend.ErrInvalid,
		codes.NotFound:           backend.ErrNotFound,
		codes.AlreadyExists:      backend.ErrExists,
		codes.Aborted:            backend.ErrBusy,
		codes.FailedPrecondition: backend.ErrPrecondition,
		codes.ResourceExhausted:  backend.ErrNoSpace,
		codes.OutOfRange:         backend.ErrOutOfRange,
		codes.Unimplemented:      backend.ErrUnsupported,
		codes.Unavailable:        backend.ErrUnavailable,
		codes.PermissionDenied:   backend.ErrDenied,
		codes.Unauthenticated:    backend.ErrCredentials,
		codes.DataLoss:           backend.ErrDataLoss,
	}[answer.Code()]
}
