package win32

import (
	"errors"
	"strings"
	"testing"
)

// The numbers of "Storage Management API Common Return Codes" are not those of
// Windows: each of these is another error as a system error code.
func TestStorageResult_isNotAnErrorNumberOfWindows(t *testing.T) {
	for result, want := range map[StorageResult]Errno{
		1: ErrorNotSupported, 2: ErrorGenFailure, 3: ErrorTimeout, 4: ErrorGenFailure, 5: ErrorInvalidParameter, 6: ErrorBusy, 8: ErrorNotFound,
		4099: ErrorBusy, 40000: ErrorDiskFull, 40001: ErrorAccessDenied, 40004: ErrorIODevice, 41002: ErrorWriteProtect, 41003: ErrorNotReady,
		43001: ErrorNotSupported, 43006: ErrorWriteProtect, 49999: ErrorGenFailure,
	} {
		number, ok := errors.AsType[Errno](error(result))
		if !ok || number != want || !errors.Is(result, result) {
			t.Errorf("%v is %v; want %v", result, number, want)
		}
	}
	if text := StorageAccessDenied.Error(); !strings.Contains(text, "40001") ||
		!strings.Contains(text, "access denied") || !strings.Contains(text, "ERROR_ACCESS_DENIED (5)") {
		t.Error(text)
	}
	if text := StorageResult(49999).Error(); text != "storage result 49999" {
		t.Error(text)
	}
}

// iscsierr.h gives three of its numbers the severity of a warning.
func TestISCSIWarnings_areThoseOfTheHeader(t *testing.T) {
	for number, want := range map[Errno]Errno{
		ISDSCOperationNotAllSuccess: 0xAFFF002E, ISDSCOperationRequiresReboot: 0xAFFF003B, ISDSCShortCHAPSecret: 0xAFFF0048,
	} {
		if number != want || !number.IsISCSIWarning() {
			t.Errorf("%v; want %#x, a warning", number, uint32(want))
		}
	}
	for number, name := range _Errno_map {
		if strings.HasPrefix(name, "ISDSC_") && !number.IsISCSIWarning() && number&0xFFFF0000 != 0xEFFF0000 {
			t.Errorf("%s is %#x", name, uint32(number))
		}
	}
	for _, number := range []Errno{0, ErrorAccessDenied, ISDSCSessionBusy, ErrorWBEMFailed} {
		if number.IsISCSIWarning() {
			t.Errorf("%v is called a warning", number)
		}
	}
}
