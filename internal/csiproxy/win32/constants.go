package win32

// ControlCode is a control code of DeviceIoControl.
type ControlCode uint32

// File attributes (winnt.h).
const (
	FileAttributeDirectory    uint32 = 0x10
	FileAttributeReparsePoint uint32 = 0x400
)
