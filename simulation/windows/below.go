package windows

import (
	"context"
	"errors"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// OpenBelow implements win32.Below.
func (d *directory) OpenBelow(names []string) (win32.Directory, error) {
	call := d.call("OpenBelow", strings.Join(names, `\`))
	call.opens = true
	return invoke(context.Background(), d.c, call, func() (win32.Directory, error) {
		n, err := d.below(names)
		switch {
		case err != nil:
			return nil, err
		case n.reparse != nil:
			return nil, win32.ErrorStoppedOnSymlink
		case !n.dir:
			return nil, win32.ErrorDirectory
		case n.fs.volume.lock != nil:
			return nil, win32.ErrorAccessDenied
		}
		return d.c.openDirectory(n), nil
	})
}

// StatBelow implements win32.Below.
func (d *directory) StatBelow(names []string) (win32.FileInfo, error) {
	return invoke(context.Background(), d.c, d.call("StatBelow", strings.Join(names, `\`)), func() (win32.FileInfo, error) {
		n, err := d.below(names)
		if err != nil {
			return win32.FileInfo{}, err
		}
		return n.info(), nil
	})
}

// below finds an entry without going through a reparse point.
func (d *directory) below(names []string) (*node, error) {
	if err := d.valid(); err != nil {
		return nil, err
	}
	n := d.node
	for i, name := range names {
		switch {
		case n.reparse != nil:
			return nil, win32.ErrorStoppedOnSymlink
		case !n.dir:
			return nil, win32.ErrorPathNotFound
		}
		child, err := n.child(name)
		if errors.Is(err, win32.ErrorFileNotFound) && i < len(names)-1 {
			err = win32.ErrorPathNotFound
		}
		if err != nil {
			return nil, err
		}
		n = child
	}
	return n, nil
}
