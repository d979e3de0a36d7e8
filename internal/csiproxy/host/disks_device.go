package host

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

const (
	// firstAnswer bytes are enough for nearly all devices; largestAnswer is the bound
	// for a device that asks for more each time.
	firstAnswer   = 4 << 10
	largestAnswer = 1 << 20
)

// answer is a control call that fills a buffer, repeated with a larger one until
// all of it fits.
func answer[T any](d win32.Device, code win32.ControlCode, in []byte, decode func([]byte) (T, error)) (T, error) {
	var none T
	for size := firstAnswer; ; size *= 4 {
		out := make([]byte, size)
		n, err := d.Control(code, in, out)
		if isErrno(err, win32.ErrorMoreData, win32.ErrorInsufficientBuffer) && size < largestAnswer {
			continue
		}
		if err != nil {
			return none, failed(err, "%v", code)
		}
		if n < 0 || n > len(out) {
			return none, fmt.Errorf("%v: %d bytes in a buffer of %d", code, n, len(out))
		}
		if code == win32.IoctlStorageQueryProperty && size < largestAnswer {
			if whole, err := win32.DescriptorSize(out[:n]); err == nil && int64(whole) > int64(size) {
				continue
			}
		}
		value, err := decode(out[:n])
		if err != nil {
			return none, fmt.Errorf("%v: %w", code, err)
		}
		return value, nil
	}
}

// control makes a control call that has no output.
func control(d win32.Device, code win32.ControlCode, in []byte) error {
	_, err := d.Control(code, in, nil)
	return failed(err, "%v", code)
}

func layoutOf(d win32.Device) (win32.DriveLayout, error) {
	return answer(d, win32.IoctlDiskGetDriveLayoutEx, nil, win32.DecodeDriveLayout)
}

func geometryOf(d win32.Device) (win32.Geometry, error) {
	return answer(d, win32.IoctlDiskGetDriveGeometryEx, nil, win32.DecodeGeometry)
}

func attributesOf(d win32.Device) (win32.GetDiskAttributes, error) {
	return answer(d, win32.IoctlDiskGetDiskAttributes, nil, win32.DecodeGetDiskAttributes)
}

func lengthOf(d win32.Device) (int64, error) {
	info, err := answer(d, win32.IoctlDiskGetLengthInfo, nil, win32.DecodeLengthInfo)
	return info.Length, err
}

// setAttributes sets bits of a disk's state or clears them, and reads them back.
func setAttributes(d win32.Device, bits uint64, on bool) error {
	set := win32.SetDiskAttributes{Persist: true, Mask: bits}
	if on {
		set.Attributes = bits
	}
	if err := control(d, win32.IoctlDiskSetDiskAttributes, set.Encode()); err != nil {
		return err
	}
	if err := control(d, win32.IoctlDiskUpdateProperties, nil); err != nil {
		return err
	}
	now, err := attributesOf(d)
	if err != nil {
		return err
	}
	if now.Attributes&bits != set.Attributes {
		return fmt.Errorf("%v answered success, but the disk's attributes are %#x and those asked for %#x of %#x",
			win32.IoctlDiskSetDiskAttributes, now.Attributes, set.Attributes, bits)
	}
	return nil
}

// describe returns what an open disk reports. The errors of failed queries are
// joined in the disk's Problem.
func (h *Host) describe(d win32.Device, number uint32) api.Disk {
	disk := api.Disk{Number: number}
	var problems []error
	if geometry, err := geometryOf(d); err != nil {
		problems = append(problems, err)
	} else {
		disk.Size = geometry.DiskSize
	}
	if attributes, err := attributesOf(d); err != nil {
		problems = append(problems, err)
	} else {
		disk.Online = attributes.Attributes&win32.DiskAttributeOffline == 0
		disk.ReadOnly = attributes.Attributes&win32.DiskAttributeReadOnly != 0
	}
	// Not every bus has addresses, serial numbers and identifiers: their absence is not
	// a problem of the disk.
	if address, err := h.addressOf(d, number); err == nil {
		disk.Location = location(address)
	} else if !cannot(err) {
		problems = append(problems, err)
	}
	if err := identify(d, &disk); err != nil {
		problems = append(problems, err)
	}
	disk.Problem = errors.Join(problems...)
	return disk
}

// identify reads a disk's identity. If a query fails, it returns none: a caller
// would take a part of the identity for all of it.
func identify(d win32.Device, disk *api.Disk) error {
	device, err := answer(d, win32.IoctlStorageQueryProperty, query(win32.PropertyDevice), win32.DecodeDeviceDescriptor)
	if err != nil && !cannot(err) {
		return err
	}
	ids, err := answer(d, win32.IoctlStorageQueryProperty, query(win32.PropertyDeviceID), win32.DecodeDeviceIDs)
	if err != nil && !cannot(err) {
		return err
	}
	disk.SerialNumber, disk.Page83 = strings.TrimSpace(device.Serial), page83(ids)
	for _, id := range ids {
		disk.Identifiers = append(disk.Identifiers, api.DiskIdentifier{
			CodeSet: id.CodeSet, Type: id.Type, Association: id.Association, Value: identifierText(id),
		})
	}
	return nil
}

// addressOf repeats the query with read access if the driver denies it without.
func (h *Host) addressOf(d win32.Device, number uint32) (win32.SCSIAddress, error) {
	ask := func(d win32.Device) (win32.SCSIAddress, error) {
		return answer(d, win32.IoctlSCSIGetAddress, nil, win32.DecodeSCSIAddress)
	}
	address, err := ask(d)
	if isErrno(err, win32.ErrorAccessDenied) {
		return withDisk(h, number, win32.Read, ask)
	}
	return address, err
}

func query(property uint32) []byte {
	return win32.PropertyQuery{Property: property, Type: win32.QueryStandard}.Encode()
}

// cannot reports whether an error says that a device lacks the property or the call.
func cannot(err error) bool {
	return isErrno(err, win32.ErrorInvalidFunction, win32.ErrorNotSupported, win32.ErrorInvalidParameter,
		win32.ErrorNotFound, win32.ErrorFileNotFound)
}

func location(a win32.SCSIAddress) *api.DiskLocation {
	decimal := func(b uint8) string { return strconv.Itoa(int(b)) }
	return &api.DiskLocation{Adapter: decimal(a.Port), Bus: decimal(a.Path),
		Target: decimal(a.Target), LUN: decimal(a.LUN)}
}

// page83 returns the first identifier of the device itself in the form that drivers
// compare (upstream's ListDiskIDs: binary in lower-case hex, ASCII as it is).
func page83(ids win32.DeviceIDs) string {
	for _, id := range ids {
		if id.Association != win32.AssociationDevice || len(id.Identifier) == 0 {
			continue
		}
		if id.CodeSet == win32.CodeSetBinary || id.CodeSet == win32.CodeSetASCII {
			return identifierText(id)
		}
	}
	return ""
}

// identifierText returns a text as it is, and any other identifier in hexadecimal
// digits.
func identifierText(id win32.DeviceID) string {
	if id.CodeSet == win32.CodeSetASCII || id.CodeSet == win32.CodeSetUTF8 {
		return strings.ToValidUTF8(strings.Trim(string(id.Identifier), "\x00 "), "")
	}
	return hex.EncodeToString(id.Identifier)
}
