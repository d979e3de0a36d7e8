package native

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/windows"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// Options configure the calls. The zero value is the default.
type Options struct {
	// Slow limits how many of the calls that wait for other services run at once, each
	// in its own thread. Formats, SMB and iSCSI have a limit each; 0 means 8. A call whose
	// caller has left counts until it returns.
	Slow int
}

const defaultSlow = 8

// New returns the calls of this machine.
func New(options Options) win32.Machine {
	if options.Slow <= 0 {
		options.Slow = defaultSlow
	}
	newWMI := func() *wmi {
		return &wmi{connect: connectServer, lastError: lastError, gate: make(gate, options.Slow)}
	}
	return win32.Machine{
		Files:    files{},
		Devices:  devices{},
		Volumes:  volumes{wmi: newWMI()},
		SMB:      smb{wmi: newWMI()},
		ISCSI:    iscsi{dll: windows.NewLazySystemDLL(iscsidsc), gate: make(gate, options.Slow)},
		Services: services{},
		Firmware: firmware{},
	}
}

// gate bounds how many slow calls run at once.
type gate chan struct{}

// await runs a call that cannot be interrupted, once slow admits it; it fails if ctx ends
// before. It waits until a call returns, even if the caller left: an operation keeps its
// volume or share locked until its calls have returned. Otherwise a format whose caller
// left could run after the next operation and erase the result of that.
func await[T any](ctx context.Context, slow gate, call func() (T, error)) (T, error) {
	var none T
	select {
	case slow <- struct{}{}:
	case <-ctx.Done():
		return none, ctx.Err()
	}
	defer func() { <-slow }()
	if err := ctx.Err(); err != nil {
		return none, err
	}
	return call()
}

// awaitError is await for a call without a result.
func awaitError(ctx context.Context, slow gate, call func() error) error {
	_, err := await(ctx, slow, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// errno is the number of an error that a call returned. The thread's last error could be
// that of a later call.
func errno(err error) win32.Errno {
	var own win32.Errno
	if errors.As(err, &own) {
		return own
	}
	var status windows.NTStatus
	if errors.As(err, &status) {
		if status == windows.STATUS_DELETE_PENDING { // which Windows itself converts to ERROR_ACCESS_DENIED
			return win32.ErrorDeletePending
		}
		return win32.Errno(status.Errno())
	}
	var number syscall.Errno
	switch {
	case !errors.As(err, &number), number&syscall.Errno(windows.APPLICATION_ERROR) != 0:
		return win32.ErrorInvalidParameter // rejected by package syscall itself
	case number == 0:
		return win32.ErrorGenFailure // a call that fails without a number
	}
	return win32.Errno(number)
}

// failed adds the name of the call to an error.
func failed(call string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", call, errno(err))
}

// returned is failed for a call that returns its error number.
func returned(call string, result uintptr) error {
	if result == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", call, win32.Errno(uint32(result)))
}

// find checks that a procedure exists: a call of a missing one, as in an old Windows or
// in wine, would panic.
func find(proc *windows.LazyProc) error {
	if err := proc.Find(); err != nil {
		return fmt.Errorf("%w: this Windows has no %s: %w", backend.ErrUnsupported, proc.Name, win32.ErrorProcNotFound)
	}
	return nil
}

// utf16 is a text for Windows.
func utf16(text string) (*uint16, error) {
	pointer, err := windows.UTF16PtrFromString(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %.60q has a NUL", win32.ErrorInvalidName, text)
	}
	return pointer, nil
}

// first is the address of a buffer; nil for an empty one.
func first(buffer []byte) *byte {
	if len(buffer) == 0 {
		return nil
	}
	return &buffer[0]
}
