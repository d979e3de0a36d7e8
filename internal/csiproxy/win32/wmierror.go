package win32

import (
	"strconv"
	"strings"
)

// ParseMessageID finds the number in the property MessageID of an error of WMI
// (MSFT_WmiError, CIM_Error): "Windows System Error 53" or "HRESULT 0x80070035".
// Providers of the newer kind put it there only; for all of their errors, COM returns
// WBEM_E_FAILED.
func ParseMessageID(id string) (Errno, bool) {
	const system, result = "Windows System Error ", "HRESULT "
	if text, ok := strings.CutPrefix(id, system); ok {
		number, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
		return Errno(number), err == nil && number != 0
	}
	if text, ok := strings.CutPrefix(id, result); ok {
		number, err := strconv.ParseUint(strings.TrimSpace(text), 0, 32)
		return FromHRESULT(uint32(number)), err == nil && number != 0
	}
	return 0, false
}
