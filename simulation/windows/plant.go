package windows

import (
	"fmt"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// The methods of this file act like another program on the machine: through
// Win32 paths, with Windows' rules and error numbers, and without faults.

// addSystemDisk adds disk 0 with C:.
func (m *Machine) addSystemDisk() {
	size := m.options.SystemDiskSize
	if size == 0 {
		size = 64 << 30
	}
	d, err := newDisk(DiskSpec{
		Serial: "SYSTEM", Size: size, Bus: win32.BusSATA, Location: &win32.SCSIAddress{}, Style: "data", FileSystem: ntfs,
	})
	if err != nil {
		panic(fmt.Sprintf("the system's disk: %v", err))
	}
	d.system = true
	m.attach(d, 0)
	for _, p := range d.table.partitions {
		if p.volume != nil {
			p.volume.letter = 'C'
			p.volume.arrives = p.volume.arrives.Add(-m.options.VolumeDelay)
			p.volume.filesystem().shortNames = !m.options.NoShortNames
		}
	}
	for _, path := range []string{startDir, `C:\Program Files`, `C:\Users`, `C:\var\lib\kubelet\plugins`,
		`C:\var\lib\kubelet\pods`} {
		if err := m.mkdirAll(path); err != nil {
			panic(fmt.Sprintf("%s: %v", path, err))
		}
	}
}

// at splits a path into the directory that it lies in and its last component.
func (m *Machine) at(path string) (directory *node, name string, err error) {
	p, err := parse(path)
	if err != nil {
		return nil, "", err
	}
	if len(p.components) == 0 || p.server != "" {
		return nil, "", win32.ErrorInvalidName
	}
	name = p.components[len(p.components)-1]
	p.components = p.components[:len(p.components)-1]
	links := 0
	at, err := m.walk(p, true, &links)
	switch {
	case err != nil:
		return nil, "", err
	case at.node == nil || !at.node.dir:
		return nil, "", win32.ErrorPathNotFound
	}
	return at.node, name, nil
}

// plant makes an entry.
func (m *Machine) plant(path string, f func(directory *node, name string) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	directory, name, err := m.at(path)
	if err != nil {
		return err
	}
	return f(directory, name)
}

// entry does something with an entry; a link at the path is the entry itself.
func (m *Machine) entry(path string, f func(*node) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	at, err := m.resolve(path, false)
	switch {
	case err != nil:
		return err
	case at.node == nil:
		return win32.ErrorInvalidParameter
	}
	return f(at.node)
}

// MkdirAll makes a directory and its parents.
func (m *Machine) MkdirAll(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	return m.mkdirAll(path)
}

func (m *Machine) mkdirAll(path string) error {
	if at, err := m.resolve(path, true); err == nil {
		if at.node == nil || !at.node.dir {
			return win32.ErrorAlreadyExists
		}
		return nil
	}
	if i := strings.LastIndex(strings.TrimRight(path, `\`), `\`); i > 0 {
		if err := m.mkdirAll(path[:i+1]); err != nil {
			return err
		}
	}
	directory, name, err := m.at(path)
	if err != nil {
		return err
	}
	_, err = m.make(directory, name, true)
	return err
}

// WriteFile makes a file of a size in bytes, or gives one that is there a new
// size. Its data is in Windows' cache until the volume is flushed, dismounted or
// locked: a volume that goes away before is one of the Losses.
func (m *Machine) WriteFile(path string, size int64) error {
	return m.plant(path, func(directory *node, name string) error {
		n, err := directory.child(name)
		if err != nil {
			if n, err = m.make(directory, name, false); err != nil {
				return err
			}
		}
		if n.dir {
			return win32.ErrorAccessDenied
		}
		_, free := n.fs.space()
		more := n.fs.clustersOf(size) - n.fs.clustersOf(n.size)
		if more > free {
			return win32.ErrorDiskFull
		}
		n.size, n.fs.used, n.fs.dirty = size, n.fs.used+more, true
		return nil
	})
}

// Symlink makes a symbolic link, to a directory with dir.
func (m *Machine) Symlink(path, target string, dir bool) error {
	return m.plant(path, func(directory *node, name string) error { return m.symlink(directory, name, target, dir) })
}

func (m *Machine) symlink(directory *node, name, target string, dir bool) error {
	if target == "" {
		return win32.ErrorInvalidParameter
	}
	reparse := win32.NewSymlink(target)
	if !strings.HasPrefix(target, `\\`) && (len(target) < 3 || target[1:3] != `:\`) {
		reparse = win32.Reparse{Tag: win32.ReparseTagSymlink, Substitute: target, Print: target, Relative: true}
	}
	return m.link(directory, name, dir, reparse)
}

// link makes an entry that is a reparse point, or nothing at all.
func (m *Machine) link(directory *node, name string, dir bool, reparse win32.Reparse) error {
	if directory.fs.kind != ntfs && directory.fs.kind != "ReFS" {
		return win32.ErrorInvalidFunction
	}
	n, err := m.make(directory, name, dir)
	if err != nil {
		return err
	}
	if err := m.setReparse(n, reparse); err != nil {
		n.drop()
		return err
	}
	return nil
}

// Junction makes a junction to a directory.
func (m *Machine) Junction(path, target string) error {
	return m.plant(path, func(directory *node, name string) error {
		return m.link(directory, name, true, win32.NewMountPoint(target))
	})
}

// SetReparse makes an empty directory that is there a reparse point, which needs
// no other handle closed.
func (m *Machine) SetReparse(path string, reparse win32.Reparse) error {
	return m.entry(path, func(n *node) error { return m.setReparse(n, reparse) })
}

// SetAttributes sets further attributes of an entry, such as read-only.
func (m *Machine) SetAttributes(path string, attributes uint32) error {
	return m.entry(path, func(n *node) error {
		n.attributes = attributes &^ (win32.FileAttributeDirectory | win32.FileAttributeReparsePoint)
		return nil
	})
}

// Rename moves an entry within its volume.
func (m *Machine) Rename(from, to string) error {
	return m.plant(to, func(directory *node, name string) error {
		at, err := m.resolve(from, false)
		switch {
		case err != nil:
			return err
		case at.node == nil:
			return win32.ErrorNotSameDevice
		}
		return m.rename(at.node, directory, name)
	})
}

// Remove removes a file, an empty directory, or a link itself (DeleteFileW,
// RemoveDirectoryW: not one that is read-only).
func (m *Machine) Remove(path string) error {
	return m.entry(path, func(n *node) error {
		if n.attributes&win32.FileAttributeReadOnly != 0 {
			return win32.ErrorAccessDenied
		}
		return m.remove(n)
	})
}

// Lstat describes an entry, without following a link at the path.
func (m *Machine) Lstat(path string) (info win32.FileInfo, err error) {
	err = m.entry(path, func(n *node) error {
		info = n.info()
		return nil
	})
	return info, err
}

// Exists reports whether there is an entry at the path; a dangling link is one.
func (m *Machine) Exists(path string) bool {
	_, err := m.Lstat(path)
	return err == nil
}

// Readlink returns the target of a link, junction or mounted folder.
func (m *Machine) Readlink(path string) (target win32.Reparse, err error) {
	err = m.entry(path, func(n *node) error {
		if n.reparse == nil {
			return win32.ErrorNotAReparsePoint
		}
		target = n.target()
		return nil
	})
	return target, err
}

// List returns the names in a directory.
func (m *Machine) List(path string) (names []string, err error) {
	err = m.entry(path, func(n *node) error {
		for _, child := range n.list() {
			names = append(names, child.name)
		}
		return nil
	})
	return names, err
}

// OpenFile is a file or directory that another program has open.
type OpenFile struct {
	m           *Machine
	share       *share // instead of the node
	node        *node
	generation  int
	shareDelete bool
}

// Open opens a file or directory as another program: its volume is in use.
// Without shareDelete it cannot be removed or renamed until Close.
func (m *Machine) Open(path string, shareDelete bool) (*OpenFile, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	at, err := m.resolve(path, true)
	switch {
	case err != nil:
		return nil, err
	case at.share != nil:
		f := &OpenFile{m: m, share: at.share}
		at.share.open[f] = struct{}{}
		return f, nil
	}
	f := &OpenFile{m: m, node: at.node, generation: at.node.fs.generation, shareDelete: shareDelete}
	at.node.countHandle(1, shareDelete)
	m.files[f] = struct{}{}
	return f, nil
}

// Close closes it. A second call does nothing.
func (f *OpenFile) Close() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.share != nil {
		delete(f.share.open, f)
		return
	}
	if _, open := f.m.files[f]; !open {
		return
	}
	delete(f.m.files, f)
	if f.generation == f.node.fs.generation {
		f.node.countHandle(-1, f.shareDelete)
	}
}
