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

// probeTime bounds a probe while every instance of a pipe is busy. Then the pipe exists.
const probeTime = 500 * time.Millisecond

// buffer is the size in bytes of each direction's buffer. Without one, each write would
// wait for its reader, and for ever if a client does not read.
const buffer = 32 << 10

// pipes implements Transport by Windows.
type pipes struct{}

// NewTransport returns the named pipes of this machine.
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
	return &Process{}, nil // busy, or access is denied: it exists
}

// Listen implements Transport. Windows makes a new pipe or fails, and does not join an
// existing one (FILE_CREATE of go-winio). It rejects clients of other machines.
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
// instance, but wine does, and the first client would wait without end.
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

// otherEnd returns the process at the other end of a pipe, with its program and user.
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
