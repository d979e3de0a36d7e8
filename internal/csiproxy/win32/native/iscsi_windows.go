package native

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// iscsi is iscsidsc.dll. Its functions return their error number.
type iscsi struct {
	dll  *windows.LazyDLL
	gate gate
}

const iscsidsc = "iscsidsc.dll"

// anyPort is ISCSI_ANY_INITIATOR_PORT: any adapter.
const anyPort = 0xFFFFFFFF

// hasSucceeded reports whether a function succeeded. A warning, such as
// ISDSC_OPERATION_NOT_ALL_SUCCESS when one of several adapters did not answer, comes with
// a result; package host reads back whether it is complete.
func hasSucceeded(result uintptr) bool { return result == 0 || win32.Errno(result).IsISCSIWarning() }

// answered is returned for functions that can warn.
func answered(call string, result uintptr) error {
	if hasSucceeded(result) {
		return nil
	}
	return returned(call, result)
}

// procedure finds a function of the initiator's library.
func (i iscsi) procedure(name string) (*windows.LazyProc, error) {
	proc := i.dll.NewProc(name)
	if proc.Find() != nil {
		return nil, fmt.Errorf("%w: this Windows has no iSCSI initiator (%s, %s): %w", backend.ErrUnsupported,
			iscsidsc, name, win32.ErrorModNotFound)
	}
	return proc, nil
}

// onPortal calls a function that takes initiator, port and portal.
func (i iscsi) onPortal(ctx context.Context, name string, portal api.Portal) error {
	return awaitError(ctx, i.gate, func() error { return i.callOnPortal(name, portal) })
}

func (i iscsi) callOnPortal(name string, portal api.Portal) error {
	proc, err := i.procedure(name)
	if err != nil {
		return err
	}
	data, err := win32.EncodeISCSIPortal(portal)
	if err != nil {
		return err
	}
	result, _, _ := proc.Call(0, anyPort, uintptr(unsafe.Pointer(&data[0])))
	return answered(name, result)
}

// AddPortal implements win32.ISCSI.
func (i iscsi) AddPortal(ctx context.Context, portal api.Portal) error {
	return awaitError(ctx, i.gate, func() error {
		const name = "AddIScsiSendTargetPortalW"
		proc, err := i.procedure(name)
		if err != nil {
			return err
		}
		data, err := win32.EncodeISCSIPortal(portal)
		if err != nil {
			return err
		}
		options := newLoginOptions(win32.ISCSILoginOptions{})
		defer clear(options)
		result, _, _ := proc.Call(0, anyPort, uintptr(unsafe.Pointer(&options[0])), 0, uintptr(unsafe.Pointer(&data[0])))
		return answered(name, result)
	})
}

// newLoginOptions encodes the options, with the texts that they point to.
func newLoginOptions(options win32.ISCSILoginOptions) []byte {
	data := make([]byte, options.Size())
	options.Put(data, uint64(uintptr(unsafe.Pointer(&data[0]))))
	return data
}

// RemovePortal implements win32.ISCSI.
func (i iscsi) RemovePortal(ctx context.Context, portal api.Portal) error {
	return i.onPortal(ctx, "RemoveIScsiSendTargetPortalW", portal)
}

const (
	iscsiBuffer      = 64 << 10
	iscsiBufferLimit = 16 << 20
)

// enlarged repeats a call with larger buffers until the answer fits. Not all functions
// return the size that they need.
func enlarged(name string, try func(buffer []byte) (result uintptr)) error {
	for size := iscsiBuffer; ; size *= 4 {
		result := try(make([]byte, size))
		tooSmall := win32.Errno(result) == win32.ErrorInsufficientBuffer || win32.Errno(result) == win32.ISDSCBufferTooSmall
		if !tooSmall || size >= iscsiBufferLimit {
			return answered(name, result)
		}
	}
}

// Portals implements win32.ISCSI.
func (i iscsi) Portals(ctx context.Context) ([]api.Portal, error) {
	return await(ctx, i.gate, func() (portals []api.Portal, err error) {
		const name = "ReportIScsiSendTargetPortalsExW"
		proc, err := i.procedure(name)
		if err != nil {
			return nil, err
		}
		var decoded error
		err = enlarged(name, func(buffer []byte) uintptr {
			count, size := uint32(len(buffer)/win32.ISCSIPortalInfoSize), uint32(len(buffer))
			result, _, _ := proc.Call(uintptr(unsafe.Pointer(&count)), uintptr(unsafe.Pointer(&size)),
				uintptr(unsafe.Pointer(&buffer[0])))
			if hasSucceeded(result) {
				portals, decoded = win32.DecodeISCSIPortalInfos(buffer, count)
			}
			return result
		})
		return portals, errors.Join(err, decoded)
	})
}

// Targets implements win32.ISCSI. It repeats the discovery of the given portal only: an
// unreachable one would delay it.
func (i iscsi) Targets(ctx context.Context, portal api.Portal, update bool) ([]string, error) {
	return await(ctx, i.gate, func() ([]string, error) {
		if update {
			if err := i.callOnPortal("RefreshIScsiSendTargetPortalW", portal); err != nil {
				return nil, err
			}
		}
		targets, err := i.reportTargets()
		if err != nil {
			return nil, err
		}
		wanted := addresses(ctx, portal)
		var list []string
		for _, target := range targets {
			portals, err := i.reportTargetPortals(target)
			if err != nil {
				return nil, err
			}
			for _, p := range portals {
				if wanted[endpoint(p.Address, p.Port)] {
					list = append(list, target)
					break
				}
			}
		}
		return list, nil
	})
}

func (i iscsi) reportTargets() (targets []string, err error) {
	const name = "ReportIScsiTargetsW"
	proc, err := i.procedure(name)
	if err != nil {
		return nil, err
	}
	err = enlarged(name, func(buffer []byte) uintptr {
		units := unsafe.Slice((*uint16)(unsafe.Pointer(&buffer[0])), len(buffer)/2)
		count := uint32(len(units))
		result, _, _ := proc.Call(0, uintptr(unsafe.Pointer(&count)), uintptr(unsafe.Pointer(&units[0])))
		if hasSucceeded(result) {
			targets = win32.DecodeMultiString(units)
		}
		return result
	})
	return targets, err
}

func (i iscsi) reportTargetPortals(target string) (portals []api.Portal, err error) {
	const name = "ReportIScsiTargetPortalsW"
	proc, err := i.procedure(name)
	if err != nil {
		return nil, err
	}
	text, err := utf16(target)
	if err != nil {
		return nil, err
	}
	var decoded error
	err = enlarged(name, func(buffer []byte) uintptr {
		count := uint32(len(buffer) / win32.ISCSIPortalSize)
		result, _, _ := proc.Call(0, uintptr(unsafe.Pointer(text)), 0, uintptr(unsafe.Pointer(&count)),
			uintptr(unsafe.Pointer(&buffer[0])))
		if hasSucceeded(result) {
			portals, decoded = win32.DecodeISCSIPortals(buffer, count)
		}
		return result
	})
	return portals, errors.Join(err, decoded)
}

// addresses are the spellings of a portal: its own, and the addresses to which its name
// resolves. Targets report addresses.
func addresses(ctx context.Context, portal api.Portal) map[string]bool {
	all := map[string]bool{endpoint(portal.Address, portal.Port): true}
	if net.ParseIP(strings.Trim(portal.Address, "[]")) == nil {
		hosts, _ := net.DefaultResolver.LookupHost(ctx, portal.Address)
		for _, host := range hosts {
			all[endpoint(host, portal.Port)] = true
		}
	}
	return all
}

// endpoint is one spelling of an address and port.
func endpoint(address string, port uint32) string {
	if port == 0 {
		port = win32.DefaultISCSIPort
	}
	address = strings.ToLower(strings.Trim(address, "[]"))
	if ip := net.ParseIP(address); ip != nil {
		address = ip.String()
	}
	return fmt.Sprintf("%s %d", address, port)
}
