package server

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/failpoint"
)

func TestToStatus_codes(t *testing.T) {
	cases := []struct {
		err  error
		code codes.Code
	}{
		{backend.ErrInvalid, codes.InvalidArgument},
		{backend.ErrNotFound, codes.NotFound},
		{backend.ErrExists, codes.AlreadyExists},
		{backend.ErrBusy, codes.Aborted},
		{backend.ErrStaleToken, codes.Aborted},
		{backend.ErrInUse, codes.FailedPrecondition},
		{backend.ErrPrecondition, codes.FailedPrecondition},
		{backend.ErrNoSpace, codes.ResourceExhausted},
		{backend.ErrOutOfRange, codes.OutOfRange},
		{backend.ErrUnsupported, codes.Unimplemented},
		{backend.ErrUnavailable, codes.Unavailable},
		{backend.ErrDataLoss, codes.DataLoss},
		{context.Canceled, codes.Canceled},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{failpoint.ErrInjected, codes.Internal},
		{errors.New("who knows"), codes.Internal},
		// An interrupted call may have had effects, with any other error.
		{errors.Join(backend.ErrNotFound, context.DeadlineExceeded), codes.DeadlineExceeded},
	}
	for _, c := range cases {
		wantCode(t, toStatus(fmt.Errorf("stage volume: %w", c.err), nil), c.code)
	}
	wantCode(t, toStatus(errors.New(""), nil), codes.Internal)
	if toStatus(nil, nil) != nil {
		t.Error("no error is an error")
	}
}
