package native

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// linkByPath reports whether the directory shows an entry as a reparse point to who
// asks by path. On Windows the entry's own handle says the same; wine shows a
// link made from Linux as one here only, and on every handle as what it leads
// to. The directory is open, so its path leads here. It only adds to what a
// handle reports, so its failure is ignored.
func (d *directory) linkByPath(name string) bool {
	d.once.Do(func() { d.path, _ = d.finalPath() })
	text, err := utf16(withoutSlash(d.path) + `\` + name)
	if d.path == "" || err != nil {
		return false
	}
	attributes, err := windows.GetFileAttributes(text)
	return err == nil && attributes&win32.FileAttributeReparsePoint != 0
}

// Stat implements win32.Directory.
func (d *directory) Stat(name string) (win32.FileInfo, error) {
	handle, err := d.create(name, windows.FILE_READ_ATTRIBUTES|windows.SYNCHRONIZE, shareAll, windows.FILE_OPEN, openItself)
	if err != nil {
		return win32.FileInfo{}, err
	}
	defer func() { _ = windows.CloseHandle(handle) }()
	info := win32.FileInfo{Name: name}
	if info.Attributes, info.ReparseTag, err = tagOf(handle); err != nil {
		return win32.FileInfo{}, err
	}
	if d.linkByPath(name) {
		info.Attributes |= win32.FileAttributeReparsePoint
	}
	return info, nil
}

// Open implements win32.Directory. What the handle says decides: it cannot be
// swapped any more.
func (d *directory) Open(name string) (win32.Directory, error) {
	handle, err := d.create(name, directoryRights, directoryShare, windows.FILE_OPEN, openItself)
	if err != nil {
		return nil, err
	}
	attributes, _, err := tagOf(handle)
	switch {
	case err != nil:
	case attributes&win32.FileAttributeReparsePoint != 0, d.linkByPath(name):
		err = fmt.Errorf("open: %w", win32.ErrorStoppedOnSymlink)
	case attributes&win32.FileAttributeDirectory == 0:
		err = fmt.Errorf("open: %w", win32.ErrorDirectory)
	}
	if err != nil {
		_ = windows.CloseHandle(handle)
		return nil, err
	}
	return &directory{handle: handle}, nil
}

// OpenMounted implements win32.Directory. The mounted folder itself stays open
// meanwhile, so that no link replaces it. It is open for listing, since Windows
// ignores the sharing of a handle that only reads attributes.
func (d *directory) OpenMounted(name string) (win32.Directory, error) {
	folder, err := d.create(name, directoryRights, directoryShare, windows.FILE_OPEN, openItself)
	if err != nil {
		return nil, err
	}
	defer func() { _ = windows.CloseHandle(folder) }()
	data, err := reparseData(folder)
	if err != nil {
		return nil, err
	}
	reparse, err := win32.DecodeReparse(data)
	if err != nil {
		return nil, err
	}
	if !reparse.IsVolume() {
		return nil, fmt.Errorf("open through tag %#x: %w", reparse.Tag, win32.ErrorReparseTagMismatch)
	}
	const through = windows.FILE_DIRECTORY_FILE | windows.FILE_OPEN_FOR_BACKUP_INTENT | windows.FILE_SYNCHRONOUS_IO_NONALERT
	handle, err := d.create(name, directoryRights, directoryShare, windows.FILE_OPEN, through)
	if err != nil {
		return nil, err
	}
	return &directory{handle: handle}, nil
}

// Mkdir implements win32.Directory.
func (d *directory) Mkdir(name string) error {
	handle, err := d.create(name, windows.FILE_READ_ATTRIBUTES|windows.SYNCHRONIZE, shareAll, windows.FILE_CREATE,
		openItself|windows.FILE_DIRECTORY_FILE)
	if err != nil {
		return err
	}
	return failed("CloseHandle", windows.CloseHandle(handle))
}

// Remove implements win32.Directory. An entry that is a link for the directory
// and none for its own handle is not touched: under wine that handle is the
// link's target, and elsewhere it has just been swapped.
func (d *directory) Remove(name string) error {
	handle, err := d.create(name, windows.DELETE|windows.FILE_READ_ATTRIBUTES|windows.SYNCHRONIZE, shareAll, windows.FILE_OPEN, openItself)
	if err != nil {
		return err
	}
	attributes, _, err := tagOf(handle)
	if err == nil && attributes&win32.FileAttributeReparsePoint == 0 && d.linkByPath(name) {
		err = fmt.Errorf("remove: %w", win32.ErrorReparseTagMismatch)
	}
	if err == nil {
		err = dispose(handle)
	}
	return errors.Join(err, failed("CloseHandle", windows.CloseHandle(handle)))
}

// dispose makes a file go with its handle. The newer request also takes the name
// away at once, and files that are read-only or still open; filesystems and
// systems that do not know it, wine among them, are asked in the old way.
func dispose(handle windows.Handle) error {
	const flags = windows.FILE_DISPOSITION_DELETE | windows.FILE_DISPOSITION_POSIX_SEMANTICS |
		windows.FILE_DISPOSITION_IGNORE_READONLY_ATTRIBUTE
	request := uint32(flags)
	err := windows.SetFileInformationByHandle(handle, windows.FileDispositionInfoEx,
		(*byte)(unsafe.Pointer(&request)), uint32(unsafe.Sizeof(request)))
	if err == nil {
		return nil
	}
	switch errno(err) {
	case win32.ErrorInvalidFunction, win32.ErrorNotSupported, win32.ErrorInvalidParameter, win32.ErrorCallNotImplemented:
		remove := byte(1)
		err = windows.SetFileInformationByHandle(handle, windows.FileDispositionInfo, &remove, 1)
	}
	return failed("SetFileInformationByHandle", err)
}

const (
	fullDirectory        = 14 // FileFullDirectoryInfo
	fullDirectoryRestart = 15 // FileFullDirectoryRestartInfo
	directoryBuffer      = 64 << 10
)

// List implements win32.Directory.
func (d *directory) List() ([]win32.FileInfo, error) {
	d.listing.Lock()
	defer d.listing.Unlock()
	var list []win32.FileInfo
	buffer := make([]byte, directoryBuffer)
	for class := uint32(fullDirectoryRestart); ; class = fullDirectory {
		err := windows.GetFileInformationByHandleEx(d.handle, class, &buffer[0], directoryBuffer)
		if err != nil {
			if errno(err) == win32.ErrorNoMoreFiles {
				return list, nil
			}
			return nil, failed("GetFileInformationByHandleEx", err)
		}
		part, err := win32.DecodeDirectory(buffer)
		if err != nil {
			return nil, err
		}
		list = append(list, part...)
	}
}

const symlinkDirectory = 1 // SYMBOLIC_LINK_FLAG_DIRECTORY

// Symlink implements win32.Directory. The parent is held, so its path stays its
// path. It checks that the link exists: wine answers success and makes nothing.
func (d *directory) Symlink(name, target string) error {
	if err := component(name); err != nil {
		return err
	}
	parent, err := d.finalPath()
	if err != nil {
		return err
	}
	link, err := utf16(withoutSlash(parent) + `\` + name)
	if err != nil {
		return err
	}
	to, err := utf16(target)
	if err != nil {
		return err
	}
	if err := windows.CreateSymbolicLink(link, to, symlinkDirectory); err != nil {
		return failed("CreateSymbolicLink", err)
	}
	data, err := d.Reparse(name)
	if err != nil {
		return fmt.Errorf("CreateSymbolicLink answered success, then %s: %w", errno(err).Error(), win32.ErrorCallNotImplemented)
	}
	if reparse, err := win32.DecodeReparse(data); err != nil || reparse.Tag != win32.ReparseTagSymlink {
		return errors.Join(err, fmt.Errorf("CreateSymbolicLink made something else: %w", win32.ErrorReparseTagMismatch))
	}
	return nil
}

// Reparse implements win32.Directory.
func (d *directory) Reparse(name string) ([]byte, error) {
	handle, err := d.create(name, windows.FILE_READ_ATTRIBUTES|windows.SYNCHRONIZE, shareAll, windows.FILE_OPEN, openItself)
	if err != nil {
		return nil, err
	}
	defer func() { _ = windows.CloseHandle(handle) }()
	return reparseData(handle)
}

// reparseData is FSCTL_GET_REPARSE_POINT.
func reparseData(handle windows.Handle) ([]byte, error) {
	data := make([]byte, win32.ReparseSize)
	n, err := device{handle}.Control(win32.FsctlGetReparsePoint, nil, data)
	if err != nil {
		return nil, err
	}
	return data[:n], nil
}
