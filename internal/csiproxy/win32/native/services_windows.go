package native

import (
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

type services struct{}

// with opens a service with no more rights than the call needs.
func with(name string, rights uint32, use func(service windows.Handle) error) error {
	text, err := utf16(name)
	if err != nil {
		return err
	}
	manager, err := windows.OpenSCManager(nil, nil, windows.SC_MANAGER_CONNECT)
	if err != nil {
		return failed("OpenSCManager", err)
	}
	defer func() { _ = windows.CloseServiceHandle(manager) }()
	service, err := windows.OpenService(manager, text, rights)
	if err != nil {
		return failed("OpenService "+name, err)
	}
	defer func() { _ = windows.CloseServiceHandle(service) }()
	return use(service)
}

// Query implements win32.Services.
func (services) Query(name string) (api.Service, error) {
	var found api.Service
	err := with(name, windows.SERVICE_QUERY_CONFIG|windows.SERVICE_QUERY_STATUS, func(service windows.Handle) error {
		var status windows.SERVICE_STATUS
		if err := windows.QueryServiceStatus(service, &status); err != nil {
			return failed("QueryServiceStatus", err)
		}
		found.Status = status.CurrentState
		return grown("QueryServiceConfig", func(buffer []byte, needed *uint32) error {
			config := (*windows.QUERY_SERVICE_CONFIG)(unsafe.Pointer(&buffer[0]))
			if err := windows.QueryServiceConfig(service, config, uint32(len(buffer)), needed); err != nil {
				return err
			}
			found.StartType = config.StartType
			found.DisplayName = windows.UTF16PtrToString(config.DisplayName)
			return nil
		})
	})
	if err != nil {
		return api.Service{}, err
	}
	return found, nil
}

// Limits of the service control manager's answers: it documents 8 KiB for a
// configuration and 256 KiB for a list.
const (
	serviceBuffer      = 8 << 10
	serviceBufferLimit = 256 << 10
)

// grown repeats a call with larger buffers until the answer fits.
func grown(call string, try func(buffer []byte, needed *uint32) error) error {
	for size := uint32(serviceBuffer); ; {
		var needed uint32
		err := try(make([]byte, size), &needed)
		if err == nil {
			return nil
		}
		number := errno(err)
		more := number == win32.ErrorInsufficientBuffer || number == win32.ErrorMoreData
		if !more || size >= serviceBufferLimit {
			return failed(call, err)
		}
		size = min(max(2*size, needed), serviceBufferLimit)
	}
}

// Start implements win32.Services.
func (services) Start(name string) error {
	return with(name, windows.SERVICE_START, func(service windows.Handle) error {
		return failed("StartService", windows.StartService(service, 0, nil))
	})
}

// Stop implements win32.Services.
func (services) Stop(name string) error {
	return with(name, windows.SERVICE_STOP, func(service windows.Handle) error {
		var status windows.SERVICE_STATUS
		return failed("ControlService", windows.ControlService(service, windows.SERVICE_CONTROL_STOP, &status))
	})
}

// Dependents implements win32.Services.
func (services) Dependents(name string) (names []string, err error) {
	err = with(name, windows.SERVICE_ENUMERATE_DEPENDENTS, func(service windows.Handle) error {
		return grown("EnumDependentServices", func(buffer []byte, needed *uint32) error {
			list := (*windows.ENUM_SERVICE_STATUS)(unsafe.Pointer(&buffer[0]))
			var count uint32
			if err := windows.EnumDependentServices(service, windows.SERVICE_ACTIVE, list, uint32(len(buffer)), needed,
				&count); err != nil {
				return err
			}
			for _, entry := range unsafe.Slice(list, count) {
				names = append(names, windows.UTF16PtrToString(entry.ServiceName))
			}
			return nil
		})
	})
	return names, err
}
