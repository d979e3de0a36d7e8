package win32

import (
	"fmt"
	"io/fs"
)

// Errno is a Windows error number (winerror.h, "System Error Codes"). Texts of
// Windows are localised and those of wine differ, so only numbers and their
// names are shown and compared.
type Errno uint32

// The numbers that storage operations give.
const (
	ErrorInvalidFunction Errno = 1
	ErrorFileNotFound    Errno = 2
	ErrorPathNotFound    Errno = 3
	ErrorAccessDenied    Errno = 5
)

func (e Errno) Error() string {
	return fmt.Sprintf("Windows error %d", uint32(e))
}

// Is makes the usual tests of package fs work.
func (e Errno) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return e == ErrorFileNotFound || e == ErrorPathNotFound
	case fs.ErrPermission:
		return e == ErrorAccessDenied
	}
	return false
}
