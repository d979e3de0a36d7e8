package native

import (
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

type firmware struct{}

var procGetSystemFirmwareTable = windows.NewLazySystemDLL("kernel32.dll").NewProc("GetSystemFirmwareTable")

const (
	providerSMBIOS = 0x52534D42 // RSMB
	firmwareLimit  = 1 << 20
)

// SMBIOS implements win32.Firmware.
func (firmware) SMBIOS() ([]byte, error) {
	const call = "GetSystemFirmwareTable"
	if err := find(procGetSystemFirmwareTable); err != nil {
		return nil, err
	}
	table := make([]byte, 4<<10)
	for {
		// It gives the size that the table has, whether or not that fits.
		size, _, err := procGetSystemFirmwareTable.Call(providerSMBIOS, 0,
			uintptr(unsafe.Pointer(&table[0])), uintptr(len(table)))
		switch {
		case size == 0:
			return nil, failed(call, err)
		case size <= uintptr(len(table)):
			return table[:size], nil
		case size > firmwareLimit:
			return nil, failed(call, win32.ErrorInsufficientBuffer)
		}
		table = make([]byte, size)
	}
}
