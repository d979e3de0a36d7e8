package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"time"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// probeTime is how long a probe waits while every instance of a pipe is busy,
// which is an answer, too.
const probeTime = 500 * time.Millisecond

// buffer is how many bytes of each direction may be on their way. Without one a
// write waits for its reader: for every frame, and here for clients who never
// read at all.
const buffer = 32 << 10

// pipes is Windows' own Transport.
type pipes struct{}

// NewTransport is for the named pipes of this machine.
func NewTransport() (Transport, error) { return pipes{}, nil }

// Probe implements Transport. It connects anonymously, so that the process that listens
// cannot borrow this process's rights.
func (pipes) Probe(ctx context.Context, pipe string) (*Process, error) {
	limited, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	connection, err := winio.DialPipeContext(limited, pipe)
	switch {
	case err == nil:
		defer func() { _ = connection.Close() }()
		owner := otherEnd(connection, windows.GetNamedPipeServerProcessId)
		return &owner, nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return &Process{}, nil // busy, or not for us: it exists
}

// Listen implements Transport. That the pipe is made, and not joined, Windows
// takes care of (FILE_CREATE of go-winio), and that clients of other machines are
// refused as well.
func (pipes) Listen(ctx context.Context, pipe, sddl string) (net.Listener, error) {
	listener, err := winio.ListenPipe(pipe, &winio.PipeConfig{SecurityDescriptor: sddl, InputBufferSize: buffer, OutputBufferSize: buffer})
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%w: %w", ErrTaken, err)
	}
	if err != nil {
		return nil, err
	}
	if win32.UnderWine() {
		useUp(ctx, pipe)
	}
	return listener, nil
}

// useUp connects once to a pipe that has just been made. go-winio reserves its name
// with an instance that never listens. Windows lets no client connect to that
// instance, but wine does, and the first client would wait for ever.
func useUp(ctx context.Context, pipe string) {
	limited, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if connection, err := winio.DialPipeContext(limited, pipe); err == nil {
		_ = connection.Close()
	}
}

// Client implements Transport.
func (pipes) Client(connection net.Conn) Process {
	return otherEnd(connection, windows.GetNamedPipeClientProcessId)
}

// otherEnd asks the pipe for the process at its other end, and Windows what that
// one is.
func otherEnd(connection net.Conn, ask func(windows.Handle, *uint32) error) (other Process) {
	file, ok := connection.(interface{ Fd() uintptr })
	if !ok || ask(windows.Handle(file.Fd()), &other.ID) != nil || other.ID == 0 {
		return Process{}
	}
	handle, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, other.ID)
	if err != nil {
		return other
	}
	defer func() { _ = windows.CloseHandle(handle) }()
	other.Program, other.User = programOf(handle), userOf(handle)
	return other
}

func programOf(process windows.Handle) string {
	var path [1024]uint16
	size := uint32(len(path))
	if windows.QueryFullProcessImageName(process, 0, &path[0], &size) != nil {
		return ""
	}
	return windows.UTF16ToString(path[:size])
}

func userOf(process windows.Handle) string {
	var token windows.Token
	if windows.OpenProcessToken(process, windows.TOKEN_QUERY, &token) != nil {
		return ""
	}
	defer func() { _ = token.Close() }()
	user, err := token.GetTokenUser()
	if err != nil {
		return ""
	}
	account, domain, _, err := user.User.Sid.LookupAccount("")
	if err != nil {
		return user.User.Sid.String()
	}
	return domain + `\` + account
}
