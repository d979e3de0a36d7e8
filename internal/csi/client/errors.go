package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/redact"
)

// Error is a driver's answer that is not OK. It wraps the sentinel of package backend
// for its code, a context's error, or claim.ErrDriverFailed; or, if gRPC answered in the
// driver's place, an error of no such class: the outcome is unknown then.
type Error struct {
	Driver string
	Call   string // the RPC
	Thing  string // volume or snapshot ID, or the name of one to be made
	// Code is the gRPC code's name, for people.
	Code    string
	Message string
	number  codes.Code
	kind    error
}

func (e *Error) Error() string {
	var text strings.Builder
	if e.Driver != "" {
		fmt.Fprintf(&text, "driver %s: ", e.Driver)
	}
	text.WriteString(e.Call)
	if e.Thing != "" {
		text.WriteString(" " + e.Thing)
	}
	fmt.Fprintf(&text, ": %s: %s", e.Code, e.Message)
	return text.String()
}

func (e *Error) Unwrap() error { return e.kind }

// translate returns an error that is not a gRPC status unchanged: the outcome of the
// call is unknown then. It hides the secrets of the request in the driver's message:
// drivers show the command that failed, and events, logs and conditions have readers
// who may not read Secrets.
func translate(err error, driver, call, thing string, secrets redact.Secrets) error {
	answer, ok := status.FromError(err)
	if !ok {
		return fmt.Errorf("driver %s: %s %s: %w", driver, call, thing, err)
	}
	kind := kindOf(answer.Code())
	if errors.Is(err, errNoAnswer) {
		kind = errNoAnswer
	}
	return &Error{
		Driver: driver, Call: call, Thing: thing,
		Code: answer.Code().String(), Message: secrets.Text(answer.Message()),
		number: answer.Code(), kind: kind,
	}
}

// kindOf is the reverse of the driver's mapping (CSI spec 1.13, "Error Scheme").
func kindOf(code codes.Code) error {
	switch code {
	case codes.Canceled:
		return context.Canceled
	case codes.DeadlineExceeded:
		return context.DeadlineExceeded
	case codes.InvalidArgument:
		return backend.ErrInvalid
	case codes.NotFound:
		return backend.ErrNotFound
	case codes.AlreadyExists:
		return backend.ErrExists
	case codes.Aborted:
		return backend.ErrBusy
	case codes.FailedPrecondition:
		return backend.ErrPrecondition
	case codes.ResourceExhausted:
		return backend.ErrNoSpace
	case codes.OutOfRange:
		return backend.ErrOutOfRange
	case codes.Unimplemented:
		return backend.ErrUnsupported
	case codes.Unavailable:
		return backend.ErrUnavailable
	case codes.DataLoss:
		return backend.ErrDataLoss
	}
	return claim.ErrDriverFailed
}

// Message is the driver's own words in an error, or the whole error if it has
// none: the part that a user needs to read first.
func Message(err error) string {
	var answer *Error
	if errors.As(err, &answer) {
		return answer.Message
	}
	return err.Error()
}

// CodeNumber is the number of the gRPC code in a driver's answer, which
// Kubernetes wants in VolumeAttachment.status.attachError.errorCode; ok is
// false for an error that is not a driver's answer.
func CodeNumber(err error) (number int32, ok bool) {
	var answer *Error
	if !errors.As(err, &answer) {
		return 0, false
	}
	return int32(answer.number), true //nolint:gosec // gRPC codes end at 16
}

// CodeName is the name of the gRPC code in a driver's answer, Unknown for an error
// that is not a driver's answer.
func CodeName(err error) string {
	var answer *Error
	if errors.As(err, &answer) {
		return answer.Code
	}
	return codes.Unknown.String()
}

// IsNotReady reports whether a call failed because the driver does not listen yet, or
// reports that it is not healthy (CSI spec 1.13, Probe: FAILED_PRECONDITION).
func IsNotReady(err error) bool {
	return errors.Is(err, backend.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, backend.ErrBusy) || errors.Is(err, backend.ErrPrecondition)
}

// IsInterrupted reports whether a call ended with its connection, so that it may be
// repeated with another instance of the driver.
func IsInterrupted(err error) bool {
	return errors.Is(err, backend.ErrUnavailable) || errors.Is(err, context.Canceled)
}

// Lacks reports whether a call failed because the driver does not serve it.
func Lacks(err error) bool { return errors.Is(err, backend.ErrUnsupported) }

// IsStaleToken reports whether the driver refused a listing's page token (ABORTED): the
// caller starts the listing again (CSI spec 1.13, ListVolumes errors).
func IsStaleToken(err error) bool { return errors.Is(err, backend.ErrBusy) }
