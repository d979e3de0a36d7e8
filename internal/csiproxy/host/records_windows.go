package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/windows"
)

// recordRights admit SYSTEM and administrators, and inherit nothing. Without them every
// user of the machine may read a directory below C:\ProgramData, with the proofs of
// passwords in it, and may make files there.
const recordRights = "D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)"

// makeRecordDir makes a directory, and the missing ones above it, for SYSTEM and
// administrators only. open is the reason why an existing one may still be open to
// others.
func makeRecordDir(dir string) (open, err error) {
	descriptor, err := windows.SecurityDescriptorFromString(recordRights)
	if err != nil {
		return nil, fmt.Errorf("rights %s: %w", recordRights, err)
	}
	if err := makeProtected(filepath.Clean(dir), descriptor); err != nil {
		return nil, err
	}
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return nil, err
	}
	attributes, err := windows.GetFileAttributes(name)
	switch {
	case err != nil:
		return nil, &fs.PathError{Op: "GetFileAttributes", Path: dir, Err: err}
	case attributes&windows.FILE_ATTRIBUTE_DIRECTORY == 0 || attributes&windows.FILE_ATTRIBUTE_REPARSE_POINT != 0:
		return nil, fmt.Errorf("%s is a file or a link; remove it, or name another directory", dir)
	}
	return protect(dir, descriptor), nil
}

// makeProtected is os.MkdirAll with rights.
func makeProtected(dir string, descriptor *windows.SECURITY_DESCRIPTOR) error {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return err
	}
	attributes := windows.SecurityAttributes{SecurityDescriptor: descriptor}
	attributes.Length = uint32(unsafe.Sizeof(attributes))
	err = windows.CreateDirectory(name, &attributes)
	if above := filepath.Dir(dir); errors.Is(err, windows.ERROR_PATH_NOT_FOUND) && above != dir {
		if err := makeProtected(above, descriptor); err != nil {
			return err
		}
		err = windows.CreateDirectory(name, &attributes)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return &fs.PathError{Op: "CreateDirectory", Path: dir, Err: err}
	}
	return nil
}

// protect gives an existing directory the same rights, and the administrators as its
// owner: an owner can grant any right.
func protect(dir string, descriptor *windows.SECURITY_DESCRIPTOR) error {
	rights, _, err := descriptor.DACL()
	if err != nil {
		return err
	}
	owner, err := windows.CreateWellKnownSid(windows.WinBuiltinAdministratorsSid)
	if err != nil {
		return os.NewSyscallError("CreateWellKnownSid", err)
	}
	const what = windows.OWNER_SECURITY_INFORMATION | windows.DACL_SECURITY_INFORMATION | windows.PROTECTED_DACL_SECURITY_INFORMATION
	return os.NewSyscallError("SetNamedSecurityInfo",
		windows.SetNamedSecurityInfo(dir, windows.SE_FILE_OBJECT, what, owner, nil, rights, nil))
}
