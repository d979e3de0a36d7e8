package win32

import (
	"fmt"
	"io/fs"
)

// Errno is a Windows error number (winerror.h, "System Error Codes"), or one of
// the iSCSI initiator or of COM. Texts of Windows are localised and those of
// wine differ, so only numbers and their names are shown and compared.
type Errno uint32 //nolint:errname // The word that package syscall has for it.

// errnoHighest is above all numbers that headers write in decimal.
const errnoHighest = 0xFFFF

// Error returns name and number: ERROR_DIR_NOT_EMPTY (145).
func (e Errno) Error() string {
	number := fmt.Sprintf("%d", uint32(e))
	if e > errnoHighest {
		number = fmt.Sprintf("%#X", uint32(e))
	}
	if name, ok := errnoNames[e]; ok {
		return name + " (" + number + ")"
	}
	return "Windows error " + number
}

// IsISCSIWarning reports whether a number of the iSCSI initiator is a warning: the
// operation has succeeded, if not for all adapters or at once (iscsierr.h:
// STATUS_SEVERITY_WARNING with ISDSC's customer bit).
func (e Errno) IsISCSIWarning() bool { return e&0xFFFF0000 == 0xAFFF0000 }

// FromHRESULT is the number within an HRESULT that only wraps one of Windows
// (FACILITY_WIN32), or the HRESULT itself.
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
