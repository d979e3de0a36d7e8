package win32

import "testing"

func TestParseMessageID_findsNumbersOfWindows(t *testing.T) {
	for id, want := range map[string]Errno{
		"Windows System Error 53":   ErrorBadNetPath,
		"Windows System Error 1219": ErrorSessionCredentialConflict,
		"HRESULT 0x80070043":        ErrorBadNetName,
		"HRESULT 0x80041002":        ErrorWBEMNotFound,
		"HRESULT 2147942405":        ErrorAccessDenied,
	} {
		if got, ok := ParseMessageID(id); !ok || got != want {
			t.Errorf("%q: %v, %t", id, got, ok)
		}
	}
	for _, id := range []string{"", "MI RESULT 6", "Windows System Error", "Windows System Error 0", "Windows System Error -5", "Windows System Error 99999999999", "HRESULT x"} {
		if got, ok := ParseMessageID(id); ok {
			t.Errorf("%q: %v", id, got)
		}
	}
}
