package windows

import (
	"context"
	"errors"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

type fileCalls struct{ c *client }

// OpenRoot implements win32.Files.
func (f fileCalls) OpenRoot(path string) (win32.Directory, error) {
	call := Call{Name: "Files.OpenRoot", Targets: []string{path}, opens: true}
	return invoke(context.Background(), f.c, call, func() (win32.Directory, error) {
		at, err := f.c.m.resolve(path, true)
		switch {
		case err != nil:
			return nil, err
		case at.node == nil || !at.node.dir:
			return nil, win32.ErrorDirectory
		}
		return f.c.openDirectory(at.node), nil
	})
}

// Attributes implements win32.Files.
func (f fileCalls) Attributes(path string) (uint32, error) {
	call := Call{Name: "Files.Attributes", Targets: []string{path}}
	return invoke(context.Background(), f.c, call, func() (uint32, error) {
		at, err := f.c.m.resolve(path, true)
		switch {
		case err != nil:
			return 0, err
		case at.share != nil:
			return win32.FileAttributeDirectory, nil
		}
		return at.node.info().Attributes, nil
	})
}

// directory is an open directory: no process may remove or rename it meanwhile.
type directory struct {
	c          *client
	node       *node
	generation int
}

func (c *client) openDirectory(n *node) *directory {
	d := &directory{c: c, node: n, generation: n.fs.generation}
	n.countHandle(1, false)
	c.opened(d)
	return d
}

func (d *directory) release() {
	if d.generation == d.node.fs.generation {
		d.node.countHandle(-1, false)
	}
}

// Close implements win32.Directory.
func (d *directory) Close() error { return d.c.closed(d) }

// valid returns the error of a handle whose volume no longer exists.
func (d *directory) valid() error {
	if _, open := d.c.handles[d]; !open {
		return win32.ErrorInvalidHandle
	}
	if d.generation != d.node.fs.generation || d.node.fs.volume == nil {
		return win32.ErrorFileInvalid
	}
	return nil
}

// call describes a call on an entry of the directory.
func (d *directory) call(name, entry string) Call {
	d.c.m.mu.Lock()
	defer d.c.m.mu.Unlock()
	call := Call{Name: "Directory." + name}
	path, _ := d.c.m.path(d.node)
	if entry != "" {
		path = strings.TrimSuffix(path, `\`) + `\` + entry
	}
	call.Targets = []string{path}
	if v := d.node.fs.volume; v != nil {
		call.Targets = append(append(call.Targets, v.name), v.disk.targets()...)
	}
	return call
}

// on makes a call about an entry, with the names of its levels.
func on[T any](d *directory, call Call, names []string, f func(*node) (T, error)) (T, error) {
	return invoke(context.Background(), d.c, call, func() (T, error) {
		var zero T
		n, err := d.below(names)
		if err != nil {
			return zero, err
		}
		return f(n)
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

// Path implements win32.Directory.
func (d *directory) Path() (string, error) {
	return invoke(context.Background(), d.c, d.call("Path", ""), func() (string, error) {
		if err := d.valid(); err != nil {
			return "", err
		}
		path, ok := d.c.m.path(d.node)
		if !ok {
			return "", win32.ErrorPathNotFound
		}
		return path, nil
	})
}

// Stat implements win32.Directory.
func (d *directory) Stat(names ...string) (win32.FileInfo, error) {
	call := d.call("Stat", strings.Join(names, `\`))
	return on(d, call, names, func(n *node) (win32.FileInfo, error) { return n.info(), nil })
}

// Open implements win32.Directory.
func (d *directory) Open(names ...string) (win32.Directory, error) {
	call := d.call("Open", strings.Join(names, `\`))
	call.opens = true
	return on(d, call, names, func(n *node) (win32.Directory, error) {
		switch {
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

// OpenMounted implements win32.Directory. Windows opens the present target of the reparse
// point, which may differ from the one that the caller read.
func (d *directory) OpenMounted(name string) (win32.Directory, error) {
	call := d.call("OpenMounted", name)
	call.opens = true
	return on(d, call, []string{name}, func(n *node) (win32.Directory, error) {
		at := resolved{node: n}
		if n.reparse != nil {
			links := 0
			var err error
			if at, err = d.c.m.follow(n, nil, true, &links); err != nil {
				return nil, err
			}
		}
		if at.node == nil || !at.node.dir {
			return nil, win32.ErrorDirectory
		}
		return d.c.openDirectory(at.node), nil
	})
}

// Mkdir implements win32.Directory.
func (d *directory) Mkdir(name string) error {
	call := d.call("Mkdir", name)
	call.Changes = true
	return do(context.Background(), d.c, call, func() error {
		if err := d.valid(); err != nil {
			return err
		}
		_, err := d.c.m.make(d.node, name, true)
		return err
	})
}

// Remove implements win32.Directory. By handle, a file that is read-only goes, too
// (FILE_DISPOSITION_IGNORE_READONLY_ATTRIBUTE).
func (d *directory) Remove(name string) error {
	call := d.call("Remove", name)
	call.Changes = true
	_, err := on(d, call, []string{name}, func(n *node) (none, error) { return none{}, d.c.m.remove(n) })
	return err
}

// List implements win32.Directory.
func (d *directory) List() ([]win32.FileInfo, error) {
	return invoke(context.Background(), d.c, d.call("List", ""), func() ([]win32.FileInfo, error) {
		if err := d.valid(); err != nil {
			return nil, err
		}
		var list []win32.FileInfo
		for _, n := range d.node.list() {
			list = append(list, n.info())
		}
		if len(list) == 0 {
			return nil, nil
		}
		return win32.DecodeDirectory(win32.EncodeDirectory(list)) // what no structure carries does not arrive
	})
}

// Symlink implements win32.Directory.
func (d *directory) Symlink(name, target string) error {
	call := d.call("Symlink", name)
	call.Changes = true
	return do(context.Background(), d.c, call, func() error {
		if err := d.valid(); err != nil {
			return err
		}
		return d.c.m.symlink(d.node, name, target, true)
	})
}

// Reparse implements win32.Directory.
func (d *directory) Reparse(name string) ([]byte, error) {
	return on(d, d.call("Reparse", name), []string{name}, func(n *node) ([]byte, error) {
		if n.reparse == nil {
			return nil, win32.ErrorNotAReparsePoint
		}
		return append([]byte(nil), n.reparse...), nil
	})
}
