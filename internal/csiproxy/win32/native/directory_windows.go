package native

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// linkByPath reports whether the directory shows an entry as a reparse point by its
// path. On Windows the entry's own handle says the same; wine shows a link made from
// Linux as one by its path only, and on every handle as its target. The directory is
// open, so its path leads here. The check only adds to the handle's, so its failure is
// ignored.
func (d *directory) linkByPath(name string) bool {
	attributes, err := d.attributesByPath([]string{name})
	return err == nil && attributes&win32.FileAttributeReparsePoint != 0
}

// attributesByPath returns an entry's attributes if no directory on the way is a link.
func (d *directory) attributesByPath(names []string) (attributes uint32, err error) {
	path := d.knownPath()
	if path == "" {
		return 0, fmt.Errorf("GetFinalPathNameByHandle: %w", win32.ErrorInvalidHandle)
	}
	path = withoutSlash(path)
	for _, name := range names {
		if err := component(name); err != nil {
			return 0, err
		}
		if attributes&win32.FileAttributeReparsePoint != 0 {
			return 0, fmt.Errorf("on the way: %w", win32.ErrorStoppedOnSymlink)
		}
		path += `\` + name
		text, err := utf16(path)
		if err != nil {
			return 0, err
		}
		if attributes, err = windows.GetFileAttributes(text); err != nil {
			return 0, failed("GetFileAttributes", err)
		}
	}
	return attributes, nil
}

var underWine = sync.OnceValue(win32.UnderWine)

// Stat implements win32.Directory. Under wine it asks by path, since there a handle is
// a call to another process, and for each level, since wine would go through a link
// made from Linux.
func (d *directory) Stat(names ...string) (win32.FileInfo, error) {
	if len(names) == 0 {
		return win32.FileInfo{}, win32.ErrorInvalidName
	}
	info := win32.FileInfo{Name: names[len(names)-1]}
	if underWine() {
		var err error
		info.Attributes, err = d.attributesByPath(names)
		return info, err
	}
	handle, err := d.create(names, windows.FILE_READ_ATTRIBUTES|windows.SYNCHRONIZE, shareAll,
		windows.FILE_OPEN, openItself)
	if err != nil {
		return win32.FileInfo{}, err
	}
	defer func() { _ = windows.CloseHandle(handle) }()
	info.Attributes, info.ReparseTag, err = tagOf(handle)
	return info, err
}

// Open implements win32.Directory. What the handle reports decides: the entry cannot
// be replaced any more.
func (d *directory) Open(names ...string) (win32.Directory, error) {
	handle, err := d.create(names, directoryRights, directoryShare, windows.FILE_OPEN, openItself)
	if err != nil {
		return nil, err
	}
	opened := &directory{handle: handle}
	attributes, _, err := tagOf(handle)
	switch {
	case err != nil:
	case attributes&win32.FileAttributeReparsePoint != 0, d.throughLink(opened, names):
		err = fmt.Errorf("open: %w", win32.ErrorStoppedOnSymlink)
	case attributes&win32.FileAttributeDirectory == 0:
		err = fmt.Errorf("open: %w", win32.ErrorDirectory)
	}
	if err != nil {
		_ = windows.CloseHandle(handle)
		return nil, err
	}
	return opened, nil
}

// throughLink reports whether a link may have led to a directory that was opened by
// the names of its levels. If the directory is at the path of these names, none did,
// and none can be put there while it is open.
func (d *directory) throughLink(opened *directory, names []string) bool {
	if len(names) == 1 {
		return d.linkByPath(names[0])
	}
	return !strings.EqualFold(opened.knownPath(), withoutSlash(d.knownPath())+`\`+strings.Join(names, `\`))
}

// OpenMounted implements win32.Directory. The mounted folder itself stays open
// meanwhile, so that no link replaces it. It is open for listing, since Windows
// ignores the sharing of a handle that only reads attributes.
func (d *directory) OpenMounted(name string) (win32.Directory, error) {
	folder, err := d.create([]string{name}, directoryRights, directoryShare, windows.FILE_OPEN, openItself)
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
	handle, err := d.create([]string{name}, directoryRights, directoryShare, windows.FILE_OPEN, through)
	if err != nil {
		return nil, err
	}
	return &directory{handle: handle}, nil
}

// Mkdir implements win32.Directory.
func (d *directory) Mkdir(name string) error {
	handle, err := d.create([]string{name}, windows.FILE_READ_ATTRIBUTES|windows.SYNCHRONIZE,
		shareAll, windows.FILE_CREATE,
		openItself|windows.FILE_DIRECTORY_FILE)
	if err != nil {
		return err
	}
	return failed("CloseHandle", windows.CloseHandle(handle))
}

// Remove implements win32.Directory. It does not touch an entry that is a link by its
// path but not by its handle: under wine that handle is the link's target, and on
// Windows the entry has just been replaced.
func (d *directory) Remove(name string) error {
	handle, err := d.create([]string{name}, windows.DELETE|windows.FILE_READ_ATTRIBUTES|windows.SYNCHRONIZE, shareAll,
		windows.FILE_OPEN, openItself)
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

// dispose makes Windows delete a file when its handle is closed. The newer request also
// removes the name at once, even if the file is read-only or still open. Filesystems and
// systems that do not know it, such as wine, get the older request.
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

// Symlink implements win32.Directory. The parent is open, so its path does not change. It
// checks that the link exists: wine answers success and makes nothing.
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
		return fmt.Errorf("CreateSymbolicLink answered success, then %s: %w", errno(err).Error(),
			win32.ErrorCallNotImplemented)
	}
	if reparse, err := win32.DecodeReparse(data); err != nil || reparse.Tag != win32.ReparseTagSymlink {
		return errors.Join(err, fmt.Errorf("CreateSymbolicLink made an entry that is not a symbolic link: %w", win32.ErrorReparseTagMismatch))
	}
	return nil
}

// Reparse implements win32.Directory.
func (d *directory) Reparse(name string) ([]byte, error) {
	handle, err := d.create([]string{name}, windows.FILE_READ_ATTRIBUTES|windows.SYNCHRONIZE, shareAll,
		windows.FILE_OPEN, openItself)
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
