package native

import (
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

type devices struct{}

var (
	cfgmgr32             = windows.NewLazySystemDLL("cfgmgr32.dll")
	procLocateDevNode    = cfgmgr32.NewProc("CM_Locate_DevNodeW")
	procReenumerateNode  = cfgmgr32.NewProc("CM_Reenumerate_DevNode")
	interfaceDisk        = windowsGUID(win32.InterfaceDisk)
	reenumerateSynchrony = uintptr(1) // CM_REENUMERATE_SYNCHRONOUS
)

func windowsGUID(g win32.GUID) windows.GUID {
	return *(*windows.GUID)(unsafe.Pointer(&g))
}

// Interfaces implements win32.Devices.
func (devices) Interfaces() ([]string, error) {
	guid := interfaceDisk
	paths, err := windows.CM_Get_Device_Interface_List("", &guid, windows.CM_GET_DEVICE_INTERFACE_LIST_PRESENT)
	if err != nil {
		return nil, configFailed("CM_Get_Device_Interface_List", err)
	}
	var list []string
	for _, path := range paths {
		if path != "" {
			list = append(list, path)
		}
	}
	return list, nil
}

// configFailed translates a number of the configuration manager. Formatting one
// calls CM_MapCrToWin32Err, which wine lacks, so it is done by hand.
func configFailed(call string, err error) error {
	result, ok := err.(windows.CONFIGRET) //nolint:errorlint // The package returns it bare.
	if !ok {
		return failed(call, err)
	}
	return configReturned(call, result)
}

func configReturned(call string, result windows.CONFIGRET) error {
	number := win32.ErrorGenFailure
	switch result {
	case windows.CR_SUCCESS:
		return nil
	case windows.CR_OUT_OF_MEMORY:
		number = win32.ErrorNotEnoughMemory
	case windows.CR_ACCESS_DENIED:
		number = win32.ErrorAccessDenied
	case windows.CR_NO_SUCH_DEVINST, windows.CR_NO_SUCH_DEVICE_INTERFACE, windows.CR_INVALID_DEVNODE:
		number = win32.ErrorNotFound
	case windows.CR_CALL_NOT_IMPLEMENTED:
		number = win32.ErrorCallNotImplemented
	case windows.CR_BUFFER_SMALL:
		number = win32.ErrorInsufficientBuffer
	}
	return fmt.Errorf("%s: CONFIGRET %#x: %w", call, uint32(result), number)
}

// deviceNamesLimit bounds the list of MS-DOS device names, in characters.
const deviceNamesLimit = 4 << 20

// Numbers implements win32.Devices.
func (devices) Numbers() ([]uint32, error) {
	for size := uint32(16 << 10); ; size *= 4 {
		names := make([]uint16, size)
		filled, err := windows.QueryDosDevice(nil, &names[0], size)
		switch {
		case err == nil:
			return win32.DiskNumbers(win32.DecodeMultiString(names[:min(filled, size)])), nil
		case errno(err) != win32.ErrorInsufficientBuffer || size >= deviceNamesLimit:
			return nil, failed("QueryDosDevice", err)
		}
	}
}

// Reenumerate implements win32.Devices.
func (devices) Reenumerate() error {
	for _, proc := range []*windows.LazyProc{procLocateDevNode, procReenumerateNode} {
		if err := find(proc); err != nil {
			return err
		}
	}
	var root uint32
	result, _, _ := procLocateDevNode.Call(uintptr(unsafe.Pointer(&root)), 0, 0)
	if err := configReturned("CM_Locate_DevNode", windows.CONFIGRET(result)); err != nil {
		return err
	}
	result, _, _ = procReenumerateNode.Call(uintptr(root), reenumerateSynchrony)
	return configReturned("CM_Reenumerate_DevNode", windows.CONFIGRET(result))
}

// OpenInterface implements win32.Devices.
func (devices) OpenInterface(path string, access win32.Access) (win32.Device, error) {
	return openDevice(path, access)
}

// OpenDisk implements win32.Devices.
func (devices) OpenDisk(number uint32, access win32.Access) (win32.Device, error) {
	return openDevice(win32.DiskName(number), access)
}

// device is an open disk or volume.
type device struct{ handle windows.Handle }

func openDevice(path string, access win32.Access) (win32.Device, error) {
	name, err := utf16(path)
	if err != nil {
		return nil, err
	}
	var rights uint32
	switch access {
	case win32.Read:
		rights = windows.GENERIC_READ
	case win32.ReadWrite:
		rights = windows.GENERIC_READ | windows.GENERIC_WRITE
	}
	handle, err := windows.CreateFile(name, rights, windows.FILE_SHARE_READ|windows.FILE_SHARE_WRITE, nil,
		windows.OPEN_EXISTING, 0, 0)
	if err != nil {
		return nil, failed("open "+path, err)
	}
	return device{handle}, nil
}

// Control implements win32.Device.
func (d device) Control(code win32.ControlCode, in, out []byte) (int, error) {
	var filled uint32
	err := windows.DeviceIoControl(d.handle, uint32(code), first(in), uint32(len(in)), first(out),
		uint32(len(out)), &filled, nil)
	return min(int(filled), len(out)), failed(code.String(), err)
}

// ReadAt implements win32.Device.
func (d device) ReadAt(p []byte, offset int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	var done uint32
	at := windows.Overlapped{Offset: uint32(offset), OffsetHigh: uint32(offset >> 32)}
	if err := windows.ReadFile(d.handle, p, &done, &at); err != nil {
		return int(done), failed("ReadFile", err)
	}
	if int(done) < len(p) {
		return int(done), failed("ReadFile", win32.ErrorHandleEOF)
	}
	return int(done), nil
}

// Flush implements win32.Device.
func (d device) Flush() error { return failed("FlushFileBuffers", windows.FlushFileBuffers(d.handle)) }

// Close implements win32.Device.
func (d device) Close() error { return failed("CloseHandle", windows.CloseHandle(d.handle)) }

// withoutSlash is a volume as a device: its name without the last backslash.
func withoutSlash(volume string) string { return strings.TrimSuffix(volume, `\`) }
