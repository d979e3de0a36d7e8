package native

import (
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

type files struct{}

// The rights and the share mode of an open directory. Other programs may use it, but as
// long as it is open, neither it nor a directory above it can be renamed or removed: the
// share mode lacks FILE_SHARE_DELETE.
const (
	directoryRights = windows.FILE_LIST_DIRECTORY | windows.FILE_TRAVERSE | windows.FILE_READ_ATTRIBUTES | windows.SYNCHRONIZE
	directoryShare  = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE
	shareAll        = directoryShare | windows.FILE_SHARE_DELETE
)

// OpenRoot implements win32.Files.
func (files) OpenRoot(path string) (win32.Directory, error) {
	handle, err := openPath(path, directoryRights, directoryShare)
	if err != nil {
		return nil, err
	}
	return newDirectory(handle)
}

// newDirectory makes a Directory of a handle. It closes a handle of another kind.
func newDirectory(handle windows.Handle) (win32.Directory, error) {
	d := &directory{handle: handle}
	attributes, _, err := tagOf(handle)
	if err == nil && attributes&win32.FileAttributeDirectory == 0 {
		err = fmt.Errorf("open: %w", win32.ErrorDirectory)
	}
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// Attributes implements win32.Files. GetFileAttributesW would return the attributes
// of a link itself; opening a handle follows it.
func (files) Attributes(path string) (uint32, error) {
	handle, err := openPath(path, windows.FILE_READ_ATTRIBUTES, shareAll)
	if err != nil {
		return 0, err
	}
	defer func() { _ = windows.CloseHandle(handle) }()
	var information windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(handle, &information); err != nil {
		return 0, failed("GetFileInformationByHandle", err)
	}
	return information.FileAttributes, nil
}

// openPath opens a file or directory, through links.
func openPath(path string, rights, share uint32) (windows.Handle, error) {
	name, err := utf16(long(path))
	if err != nil {
		return 0, err
	}
	handle, err := windows.CreateFile(name, rights, share, nil, windows.OPEN_EXISTING,
		windows.FILE_FLAG_BACKUP_SEMANTICS, 0)
	if err != nil {
		return 0, failed("open "+path, err)
	}
	return handle, nil
}

// longPath is the length at which the limit of directories' paths begins (MAX_PATH
// less a file name of 8.3).
const longPath = windows.MAX_PATH - 12

// long lifts the limit on a path's length from a long path of a drive.
func long(path string) string {
	if len(path) < longPath || len(path) < 3 || path[1] != ':' || path[2] != '\\' {
		return path
	}
	return `\\?\` + path
}

// directory is an open directory. NtCreateFile looks names up in the open directory,
// so changes of its path have no effect.
type directory struct {
	handle  windows.Handle
	listing sync.Mutex // a handle has one position in its list

	once sync.Once
	path string // see knownPath
}

// Close implements win32.Directory.
func (d *directory) Close() error { return failed("CloseHandle", windows.CloseHandle(d.handle)) }

// Path implements win32.Directory.
func (d *directory) Path() (string, error) {
	path, err := d.finalPath()
	if err != nil {
		return "", err
	}
	if rest, ok := strings.CutPrefix(path, `\\?\UNC\`); ok {
		return `\\` + rest, nil
	}
	return strings.TrimPrefix(path, `\\?\`), nil
}

// knownPath is the final path, asked for once: a directory that is open stays where
// it is. "" if Windows does not report it.
func (d *directory) knownPath() string {
	d.once.Do(func() { d.path, _ = d.finalPath() })
	return d.path
}

// pathLimit is the longest path of the kernel, in UTF-16 units.
const pathLimit = 1 << 15

func (d *directory) finalPath() (string, error) {
	for size := uint32(windows.MAX_PATH); ; {
		path := make([]uint16, size)
		length, err := windows.GetFinalPathNameByHandle(d.handle, &path[0], size, 0) // VOLUME_NAME_DOS
		switch {
		case err != nil:
			return "", failed("GetFinalPathNameByHandle", err)
		case length < size:
			return windows.UTF16ToString(path[:length]), nil
		case length > pathLimit:
			return "", failed("GetFinalPathNameByHandle", win32.ErrorFilenameExcedRange)
		}
		size = length + 1
	}
}

// component rejects a text that is not one name in a directory. The kernel itself would
// go down a\b, and open the stream of a:b.
func component(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "\\/:*?\"<>|\x00") {
		return fmt.Errorf("%w: %.80q is not the name of an entry", win32.ErrorInvalidName, name)
	}
	return nil
}

// object returns the structure by which the kernel finds an entry, with the names of its
// levels. Its text must live as long as it does. Windows goes through no reparse point on the way
// (OBJ_DONT_REPARSE); wine does not know that flag, so callers check the result.
func (d *directory) object(names []string) (*windows.OBJECT_ATTRIBUTES, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: no name of an entry", win32.ErrorInvalidName)
	}
	for _, name := range names {
		if err := component(name); err != nil {
			return nil, err
		}
	}
	text, err := windows.NewNTUnicodeString(strings.Join(names, `\`))
	if err != nil {
		return nil, fmt.Errorf("%w: %.80q", win32.ErrorInvalidName, names)
	}
	object := &windows.OBJECT_ATTRIBUTES{
		Length:        uint32(unsafe.Sizeof(windows.OBJECT_ATTRIBUTES{})),
		RootDirectory: d.handle,
		ObjectName:    text,
		Attributes:    windows.OBJ_CASE_INSENSITIVE,
	}
	if len(names) > 1 {
		object.Attributes |= windows.OBJ_DONT_REPARSE
	}
	return object, nil
}

// Options of opening an entry: itself, also when it is a reparse point; file or
// directory, as CreateFileW opens with FILE_FLAG_BACKUP_SEMANTICS; each call on
// the handle waits for its end.
const openItself = windows.FILE_OPEN_REPARSE_POINT | windows.FILE_OPEN_FOR_BACKUP_INTENT | windows.FILE_SYNCHRONOUS_IO_NONALERT

// create is NtCreateFile of an entry. The error for a reparse point on the way is that of
// Open.
func (d *directory) create(names []string, rights, share, disposition, options uint32) (windows.Handle, error) {
	object, err := d.object(names)
	if err != nil {
		return 0, err
	}
	var handle windows.Handle
	var status windows.IO_STATUS_BLOCK
	err = failed("NtCreateFile", windows.NtCreateFile(&handle, rights, object, &status, nil,
		windows.FILE_ATTRIBUTE_NORMAL, share, disposition, options, 0, 0))
	if err != nil && errno(err) == win32.ErrorReparsePointEncountered {
		err = fmt.Errorf("on the way: %w", win32.ErrorStoppedOnSymlink)
	}
	return handle, err
}

// tagOf returns a handle's attributes, and its tag if it is a reparse point.
func tagOf(handle windows.Handle) (attributes, tag uint32, err error) {
	var data [8]byte // FILE_ATTRIBUTE_TAG_INFO
	err = windows.GetFileInformationByHandleEx(handle, windows.FileAttributeTagInfo, &data[0], uint32(len(data)))
	if err != nil {
		return 0, 0, failed("GetFileInformationByHandleEx", err)
	}
	attributes = *(*uint32)(unsafe.Pointer(&data[0]))
	if attributes&win32.FileAttributeReparsePoint != 0 {
		tag = *(*uint32)(unsafe.Pointer(&data[4]))
	}
	return attributes, tag, nil
}
