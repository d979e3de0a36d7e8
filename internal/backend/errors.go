package backend

import (
	"errors"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// Sentinel errors: what went wrong, in the words of storage rather than of gRPC.
// Code below the driver wraps one of these with %w; the driver maps each to one
// CSI code (CSI spec 1.13, "Error Scheme"). An error that wraps none of them is
// an internal fault.
var (
	// ErrInvalid: a field of the request is missing or not acceptable (INVALID_ARGUMENT).
	ErrInvalid = errors.New("invalid argument")
	// ErrNotFound: the volume, snapshot, group or source does not exist (NOT_FOUND).
	ErrNotFound = errors.New("not found")
	// ErrExists: the name or path is taken by something incompatible (ALREADY_EXISTS).
	ErrExists = errors.New("already exists")
	// ErrBusy: another operation has the same key; repeat later (ABORTED).
	ErrBusy = concurrency.ErrBusy
	// ErrStaleToken: a paging token this backend did not issue (ABORTED).
	ErrStaleToken = errors.New("invalid paging token")
	// ErrInUse: the thing is in use and the operation needs it idle (FAILED_PRECONDITION).
	ErrInUse = errors.New("in use")
	// ErrPrecondition: the state of the volume or machine forbids the operation (FAILED_PRECONDITION).
	ErrPrecondition = errors.New("failed precondition")
	// ErrNoSpace: no room, in bytes or in number (RESOURCE_EXHAUSTED).
	ErrNoSpace = errors.New("no space")
	// ErrOutOfRange: the size cannot be served (OUT_OF_RANGE).
	ErrOutOfRange = errors.New("out of range")
	// ErrUnsupported: the backend does not offer the operation (UNIMPLEMENTED).
	ErrUnsupported = errors.New("not supported")
	// ErrUnavailable: a dependency is away and may return (UNAVAILABLE).
	ErrUnavailable = errors.New("unavailable")
	// ErrDenied: the credentials are good but not allowed to do it (PERMISSION_DENIED).
	ErrDenied = errors.New("permission denied")
	// ErrCredentials: there are no credentials, or they are not accepted (UNAUTHENTICATED).
	ErrCredentials = errors.New("credentials not accepted")
	// ErrDataLoss: data that should be there is gone or damaged (DATA_LOSS).
	ErrDataLoss = errors.New("data loss")
)
