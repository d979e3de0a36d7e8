//go:build unix

package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// lockTimeout is how long another process may bind or remove its own socket in
// the same directory; it does so for milliseconds.
const lockTimeout = 5 * time.Second

// lockDirectory takes flock(2) on the directory itself: a lock file next to the
// socket is not allowed.
func lockDirectory(ctx context.Context, directory string) (unlock func(), err error) {
	handle, err := os.Open(directory)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	for {
		err = unix.Flock(int(handle.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = handle.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			break
		}
		if err := concurrency.Sleep(ctx, 10*time.Millisecond); err != nil {
			_ = handle.Close()
			return nil, fmt.Errorf("directory %s is locked by another process: %w", directory, err)
		}
	}
	_ = handle.Close()
	return nil, fmt.Errorf("lock directory %s: %w", directory, err)
}

// staleDials is how many times a socket must refuse to be a dead one.
const staleDials = 1

// protect lets only the owner connect.
func protect(path string) error { return os.Chmod(path, 0o600) }

func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
