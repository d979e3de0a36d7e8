package win32

import (
	"fmt"
	"io/fs"
)

//go:generate go tool -modfile=../../../tools/go.mod stringer -type=Errno -linecomment -output=errno_string.go

// Errno is a Windows error number (winerror.h, "System Error Codes"), or one of
// the iSCSI initiator or of COM. Windows localises its texts and wine's differ, so
// only numbers and their names are shown and compared.
type Errno uint32 //nolint:errname // the name in package syscall

// errnoHighest is above all numbers that headers write in decimal.
const errnoHighest = 0xFFFF

// Error returns name and number: ERROR_DIR_NOT_EMPTY (145).
func (e Errno) Error() string {
	number := fmt.Sprintf("%d", uint32(e))
	if e > errnoHighest {
		number = fmt.Sprintf("%#X", uint32(e))
	}
	if name, ok := _Errno_map[e]; ok {
		return name + " (" + number + ")"
	}
	return "Windows error " + number
}

// IsISCSIWarning reports whether a number of the iSCSI initiator is a warning: the
// operation succeeded, but not for all adapters or not at once (iscsierr.h:
// STATUS_SEVERITY_WARNING with ISDSC's customer bit).
func (e Errno) IsISCSIWarning() bool { return e&0xFFFF0000 == 0xAFFF0000 }

// FromHRESULT returns the number of Windows that an HRESULT wraps (FACILITY_WIN32),
// or the HRESULT itself if it wraps none.
func FromHRESULT(result uint32) Errno {
	const facilityWin32 = 0x80070000
	if result&0xFFFF0000 == facilityWin32 {
		return Errno(result & 0xFFFF)
	}
	return Errno(result)
}

// Is makes the usual tests of package fs work.
func (e Errno) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return e == ErrorFileNotFound || e == ErrorPathNotFound
	case fs.ErrExist:
		return e == ErrorAlreadyExists || e == ErrorFileExists || e == ErrorDirNotEmpty
	case fs.ErrPermission:
		return e == ErrorAccessDenied || e == ErrorPrivilegeNotHeld
	}
	return false
}
