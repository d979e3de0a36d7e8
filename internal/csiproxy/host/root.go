package host

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// root is a configured directory, which stays open. Only a directory that the
// administrator configured is opened by its path, through links; everything below is
// looked up in handles.
type root struct {
	path   paths.Path
	files  win32.Files
	logger *slog.Logger

	mu     sync.Mutex
	dir    win32.Directory // nil: not open yet
	final  string          // the handle's path, as Windows reports it
	users  int             // operations that work below it now
	closed bool
}

var errClosed = fmt.Errorf("%w: csi-proxy is stopping", backend.ErrUnavailable)

func newRoot(path paths.Path, files win32.Files, logger *slog.Logger) *root {
	r := &root{path: path, files: files, logger: logger}
	if err := r.open(); err != nil {
		logger.Warn("a directory cannot be opened yet; the next call that needs it tries again",
			"path", path.String(), "error", err)
	}
	return r
}

// open requires the lock, except in newRoot.
func (r *root) open() error {
	if r.dir != nil {
		return nil
	}
	dir, err := r.files.OpenRoot(r.path.String())
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s does not exist on this machine; csi-proxy does not make it: start the program "+
			"that does (the kubelet), or configure another directory: %w",
			backend.ErrUnavailable, r.path, err)
	}
	if err != nil {
		return failed(err, "open the directory %s", r.path)
	}
	final, err := dir.Path()
	if err != nil {
		_ = dir.Close()
		return failed(err, "find the path of the directory %s", r.path)
	}
	r.dir, r.final = dir, final
	return nil
}

// use returns the directory, which stays open until release was called as many times.
// If a handle were closed during an operation, its number could become another file's.
func (r *root) use() (win32.Directory, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	if err := r.open(); err != nil {
		return nil, err
	}
	r.users++
	return r.dir, nil
}

func (r *root) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users--
	r.closeUnused()
}

func (r *root) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.closeUnused()
}

func (r *root) closeUnused() {
	if !r.closed || r.users > 0 || r.dir == nil {
		return
	}
	if err := r.dir.Close(); err != nil {
		r.logger.Warn("a directory is not closed", "path", r.path.String(), "error", err)
	}
	r.dir = nil
}

// rootOf finds the root that a path was checked against.
func (h *Host) rootOf(path paths.Path) (*root, error) {
	for _, r := range h.roots {
		if r.path.String() == path.Root() {
			return r, nil
		}
	}
	return nil, fmt.Errorf("%w: %s was not checked against this host's directories", backend.ErrInvalid, path)
}

// where returns the root's path as Windows reports it, "" while it is not open.
func (r *root) where() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.final
}
