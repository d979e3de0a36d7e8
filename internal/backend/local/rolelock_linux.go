package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// lockRole locks the halves that this process is, for as long as it lives.
func (p *Pool) lockRole(readOnly bool) error {
	desired := map[Role][]string{
		RoleAll: {controllerLock, nodeLock}, RoleController: {controllerLock}, RoleNode: {nodeLock},
	}
	for _, name := range desired[p.options.Role] {
		file, err := p.openLock(name, readOnly)
		if err != nil {
			return err
		}
		p.locks = append(p.locks, file)
		if err := tryFlock(file, unix.LOCK_EX); errors.Is(err, backend.ErrBusy) {
			half, _ := strings.CutPrefix(name, lockFile+".")
			return fmt.Errorf("%w: another process serves the %s half of this pool; stop it first", backend.ErrInUse, half)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (p *Pool) openLock(name string, readOnly bool) (*os.File, error) {
	if readOnly {
		return openRegular(p.root, name, os.O_RDONLY)
	}
	return openRegular(p.root, name, os.O_RDWR|os.O_CREATE)
}

func (p *Pool) waitFile(ctx context.Context, name string, readOnly bool) (*os.File, error) {
	file, err := p.openLock(name, readOnly)
	if err != nil {
		return nil, err
	}
	if err := awaitFlock(ctx, file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// unlock releases a lock at once; see entryLock.release.
func unlock(file *os.File) {
	_ = unix.Flock(descriptor(file), unix.LOCK_UN)
	_ = file.Close()
}
