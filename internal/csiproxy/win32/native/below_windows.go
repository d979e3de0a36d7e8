package native

import (
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// levels are what an entry some levels down is looked up by. Windows itself goes
// through no reparse point on the way (OBJ_DONT_REPARSE); wine does not know
// that, and is checked by the callers.
func (d *directory) levels(names []string) (*windows.OBJECT_ATTRIBUTES, error) {
	for _, name := range names {
		if err := component(name); err != nil {
			return nil, err
		}
	}
	text, err := windows.NewNTUnicodeString(strings.Join(names, `\`))
	if err != nil {
		return nil, fmt.Errorf("%w: %.80q", win32.ErrorInvalidName, names)
	}
	return &windows.OBJECT_ATTRIBUTES{
		Length:        uint32(unsafe.Sizeof(windows.OBJECT_ATTRIBUTES{})),
		RootDirectory: d.handle,
		ObjectName:    text,
		Attributes:    windows.OBJ_CASE_INSENSITIVE | windows.OBJ_DONT_REPARSE,
	}, nil
}

func (d *directory) createBelow(names []string, rights, share uint32) (windows.Handle, error) {
	object, err := d.levels(names)
	if err != nil {
		return 0, err
	}
	var handle windows.Handle
	var status windows.IO_STATUS_BLOCK
	err = windows.NtCreateFile(&handle, rights, object, &status, nil, windows.FILE_ATTRIBUTE_NORMAL,
		share, windows.FILE_OPEN, openItself, 0, 0)
	return handle, stopped(failed("NtCreateFile", err))
}

// stopped gives a reparse point on the way its number for a link in the end.
func stopped(err error) error {
	if err != nil && errno(err) == win32.ErrorReparsePointEncountered {
		return fmt.Errorf("on the way: %w", win32.ErrorStoppedOnSymlink)
	}
	return err
}

// OpenBelow implements win32.Below. Where the handle is, is compared with where it
// should be: equal, no link was gone through. Held, it stays there.
func (d *directory) OpenBelow(names []string) (win32.Directory, error) {
	d.once.Do(func() { d.path, _ = d.finalPath() })
	handle, err := d.createBelow(names, directoryRights, directoryShare)
	if err != nil {
		return nil, err
	}
	below := &directory{handle: handle}
	attributes, _, err := tagOf(handle)
	if err == nil {
		below.once.Do(func() { below.path, err = below.finalPath() })
	}
	switch {
	case err != nil:
	case attributes&win32.FileAttributeReparsePoint != 0, !strings.EqualFold(below.path, withoutSlash(d.path)+`\`+strings.Join(names, `\`)):
		err = fmt.Errorf("open: %w", win32.ErrorStoppedOnSymlink)
	case attributes&win32.FileAttributeDirectory == 0:
		err = fmt.Errorf("open: %w", win32.ErrorDirectory)
	}
	if err != nil {
		_ = windows.CloseHandle(handle)
		return nil, err
	}
	return below, nil
}

var underWine = sync.OnceValue(win32.UnderWine)

// StatBelow implements win32.Below. Under wine it asks by path, since there a
// handle is a call to another process, and for each level, since a link made from
// Linux would be gone through.
func (d *directory) StatBelow(names []string) (win32.FileInfo, error) {
	if len(names) == 0 {
		return win32.FileInfo{}, win32.ErrorInvalidName
	}
	info := win32.FileInfo{Name: names[len(names)-1]}
	if underWine() {
		var err error
		info.Attributes, err = d.attributesBelow(names)
		return info, err
	}
	handle, err := d.createBelow(names, windows.FILE_READ_ATTRIBUTES|windows.SYNCHRONIZE, shareAll)
	if err != nil {
		return win32.FileInfo{}, err
	}
	defer func() { _ = windows.CloseHandle(handle) }()
	info.Attributes, info.ReparseTag, err = tagOf(handle)
	return info, err
}

// attributesBelow returns an entry's attributes when nothing on the way is a link.
func (d *directory) attributesBelow(names []string) (attributes uint32, err error) {
	d.once.Do(func() { d.path, _ = d.finalPath() })
	if d.path == "" {
		return 0, fmt.Errorf("GetFinalPathNameByHandle: %w", win32.ErrorInvalidHandle)
	}
	path := withoutSlash(d.path)
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
