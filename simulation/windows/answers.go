package windows

import (
	"encoding/binary"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// address is IOCTL_SCSI_GET_ADDRESS; some drivers want a handle that may read.
func (d *device) address(out []byte) (int, error) {
	switch {
	case d.disk.spec.Location == nil:
		return 0, win32.ErrorInvalidFunction
	case d.disk.spec.AddressNeedsRead && d.access == win32.Query:
		return 0, win32.ErrorAccessDenied
	}
	return whole(out, d.disk.spec.Location.Encode())
}

// queryProperty is IOCTL_STORAGE_QUERY_PROPERTY: it gives as much of a descriptor
// as there is room for, whose Size is that of the whole.
func (d *disk) queryProperty(in, out []byte) (int, error) {
	query, err := win32.DecodePropertyQuery(in)
	if err != nil {
		return 0, win32.ErrorBadLength
	}
	var data []byte
	switch query.Property {
	case win32.PropertyDevice:
		data = win32.DeviceDescriptor{
			BusType: d.spec.Bus, Vendor: "SIM     ", Product: "Simulated disk  ", Revision: "1.0 ", Serial: d.spec.Serial,
		}.Encode()
	case win32.PropertyDeviceID:
		if len(d.ids()) == 0 {
			return 0, win32.ErrorInvalidFunction
		}
		data = d.ids().Encode()
	default:
		return 0, win32.ErrorInvalidFunction
	}
	switch {
	case query.Type == win32.QueryExists:
		return 0, nil
	case query.Type != win32.QueryStandard:
		return 0, win32.ErrorNotSupported
	case len(out) < 8:
		return 0, win32.ErrorBadLength
	}
	return copy(out, data), nil
}

// whole answers all of data, or ERROR_INSUFFICIENT_BUFFER.
func whole(out, data []byte) (int, error) {
	if len(out) < len(data) {
		return 0, win32.ErrorInsufficientBuffer
	}
	return copy(out, data), nil
}

// partly answers the fixed part, and as much of the rest as fits, with ERROR_MORE_DATA
// when it is not all.
func partly(out, data []byte, fixed int) (int, error) {
	switch {
	case len(out) < fixed:
		return 0, win32.ErrorInsufficientBuffer
	case len(out) < len(data):
		return copy(out, data), win32.ErrorMoreData
	}
	return copy(out, data), nil
}

// sectors is a size in the volume's sectors, as FSCTL_EXTEND_VOLUME takes it.
func sectors(in []byte) (int64, error) {
	if len(in) < 8 {
		return 0, win32.ErrorInvalidParameter
	}
	return int64(binary.LittleEndian.Uint64(in)), nil
}
