// Package unixsocket listens on unix sockets as CSI requires: a file that
// a dead process left is replaced, one that a living process serves is not, and Close
// removes only its own file. The CSI and the registration socket of a driver use it. It
// puts no other file next to the socket (CSI spec 1.13, "Configuration").
package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
)

const (
	// maximumPath is the size of a path in sockaddr_un without its final NUL (unix(7)).
	maximumPath = 107
	// probeTimeout bounds the question whether a process serves a socket: a
	// server that lives has it accepted by the kernel at once.
	probeTimeout = time.Second
	// redialAfter is the pause before the second dial of a socket that refused.
	redialAfter = 500 * time.Millisecond
	// attempts to bind while the file or its directory vanish.
	attempts = 5
)

// ErrServed says that another process serves the socket.
var ErrServed = errors.New("another process serves this socket")

// Path returns the file of a CSI endpoint, unix:///dir/name.sock; unix:/dir/name.sock
// and a plain path mean the same. The name must end in .sock (CSI spec 1.13).
// On Windows unix://C:\dir\name.sock and unix:///C:/dir/name.sock are taken as
// well, and a path without a drive is one of C:, as it is inside a container.
func Path(endpoint string) (string, error) { return pathOn(runtime.GOOS, endpoint) }

func pathOn(system, endpoint string) (string, error) {
	path := strings.TrimPrefix(strings.TrimPrefix(endpoint, "unix:"), "//")
	if strings.Contains(path, "://") {
		return "", fmt.Errorf("endpoint %q: CSI runs over unix sockets only; use unix:///path/to/csi.sock", endpoint)
	}
	if !strings.HasSuffix(path, ".sock") && path != "" {
		return "", fmt.Errorf("endpoint %q: the name must end in .sock", endpoint)
	}
	if system == "windows" {
		return paths.ParseEndpoint(endpoint)
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("endpoint %q: the path must be absolute, as in unix:///path/to/csi.sock", endpoint)
	}
	path = filepath.Clean(path)
	return path, checkLength(path)
}

func checkLength(path string) error {
	if len(path) > maximumPath {
		return fmt.Errorf("socket %s: the path has %d bytes and a unix socket has at most %d; use a shorter directory",
			path, len(path), maximumPath)
	}
	return nil
}

// Listener is a socket that knows its own file.
type Listener struct {
	*net.UnixListener
	path string
	file os.FileInfo
}

// Listen serves path, a file that only the owner may connect to. The directory
// is made when it is missing. ErrServed when another process serves the path; any
// file there that is not a socket is left alone and an error.
func Listen(ctx context.Context, path string) (*Listener, error) {
	if err := checkLength(path); err != nil {
		return nil, err
	}
	var listener *Listener
	err := os.ErrNotExist
	// A process that clears the directory at this moment is not related to this one.
	for attempt := 0; attempt < attempts && errors.Is(err, os.ErrNotExist); attempt++ {
		listener, err = take(ctx, path)
	}
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return listener, nil
}

func take(ctx context.Context, path string) (*Listener, error) {
	directory := filepath.Dir(path)
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return nil, err
	}
	// Two processes that start at once would each take the other's new file for
	// a stale one.
	unlock, err := lockDirectory(ctx, directory)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	return bind(ctx, path)
}

func bind(ctx context.Context, path string) (*Listener, error) {
	config := net.ListenConfig{Control: ownerOnly}
	listener, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	unix, ok := listener.(*net.UnixListener)
	if !ok {
		_ = listener.Close()
		return nil, fmt.Errorf("listening gave a %T", listener)
	}
	// Otherwise Go removes any file with that name when it closes the listener.
	unix.SetUnlinkOnClose(false)
	file, err := os.Lstat(path)
	if err == nil {
		// Windows may read which file it is only when it is compared first; then it
		// would be whichever has the name by that time.
		_ = os.SameFile(file, file)
		err = protect(path)
	}
	if err != nil {
		_ = unix.Close()
		return nil, err
	}
	return &Listener{UnixListener: unix, path: path, file: file}, nil
}

// RemoveStale removes a socket file that no process serves, or none. ErrServed when
// a process does; any file there that is not a socket is left alone and an error.
func RemoveStale(ctx context.Context, path string) error {
	unlock, err := lockDirectory(ctx, filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	defer unlock()
	if err := removeStale(ctx, path); err != nil {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	return nil
}

func removeStale(ctx context.Context, path string) error {
	file, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// Windows shows a socket file as an irregular one.
	if file.Mode()&(os.ModeSocket|os.ModeIrregular) == 0 {
		return errors.New("there is a file of that name that is not a socket; move it away")
	}
	served, err := isServed(ctx, staleDials, func(ctx context.Context) error {
		dialer := net.Dialer{Timeout: probeTimeout}
		connection, err := dialer.DialContext(ctx, "unix", path)
		if err != nil {
			return err
		}
		return connection.Close()
	})
	switch {
	case err != nil:
		return fmt.Errorf("cannot determine whether another process serves it: %w", err)
	case served:
		return ErrServed
	}
	return os.Remove(path)
}

// isServed dials a socket. On Windows the first dial of a fresh one can fail, so that
// one refusal is no proof there.
func isServed(ctx context.Context, most int, dial func(context.Context) error) (bool, error) {
	for attempt := 1; ; attempt++ {
		err := dial(ctx)
		switch {
		case err == nil:
			return true, nil
		case !isRefused(err):
			return false, err
		case attempt == most:
			return false, nil
		}
		if err := concurrency.Sleep(ctx, redialAfter); err != nil {
			return false, err
		}
	}
}

// Path is the socket's file.
func (l *Listener) Path() string { return l.path }

// Owns reports whether the file at Path is still this socket: another process may have
// removed it, or bound another socket there.
func (l *Listener) Owns() bool {
	file, err := os.Lstat(l.path)
	return err == nil && os.SameFile(file, l.file)
}

// Close stops listening and removes the file if this listener created it.
func (l *Listener) Close() error {
	var removed error
	if l.Owns() {
		removed = os.Remove(l.path)
	}
	closed := l.UnixListener.Close()
	if errors.Is(closed, net.ErrClosed) {
		closed = nil
	}
	return errors.Join(removed, closed)
}
