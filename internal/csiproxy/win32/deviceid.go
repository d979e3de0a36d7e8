package win32

// Sets of codes and associations of a DeviceID (SPC-4, "Device Identification
// VPD page").
const (
	CodeSetBinary uint32 = 1
	CodeSetASCII  uint32 = 2
	CodeSetUTF8   uint32 = 3

	AssociationDevice uint32 = 0
	AssociationPort   uint32 = 1
	AssociationTarget uint32 = 2
)

// DeviceID is STORAGE_IDENTIFIER: one identifier of VPD page 0x83.
type DeviceID struct {
	CodeSet, Type, Association uint32
	Identifier                 []byte
}

// DeviceIDs is STORAGE_DEVICE_ID_DESCRIPTOR.
type DeviceIDs []DeviceID

const (
	deviceIDsHeader    = 12
	deviceIDsSize      = 16
	identifierOffset   = 16
	identifierMaxBytes = 1<<16 - 1 - identifierOffset - 3 // NextOffset has 16 bits
)

// Encode returns the structure's bytes. An identifier is truncated to the length
// that NextOffset can express.
func (ids DeviceIDs) Encode() []byte {
	data := make([]byte, deviceIDsHeader, deviceIDsSize)
	le.PutUint32(data, deviceIDsSize)
	le.PutUint32(data[8:], uint32(len(ids)))
	for i, id := range ids {
		data = append(data, id.encode(i == len(ids)-1)...)
	}
	for len(data) < deviceIDsSize {
		data = append(data, 0)
	}
	le.PutUint32(data[4:], uint32(len(data)))
	return data
}

func (id DeviceID) encode(last bool) []byte {
	value := id.Identifier[:min(len(id.Identifier), identifierMaxBytes)]
	data := make([]byte, identifierOffset, identifierOffset+len(value)+3)
	le.PutUint32(data, id.CodeSet)
	le.PutUint32(data[4:], id.Type)
	le.PutUint16(data[8:], uint16(len(value)))
	le.PutUint32(data[12:], id.Association)
	data = append(data, value...)
	for len(data)%4 != 0 {
		data = append(data, 0)
	}
	if !last {
		le.PutUint16(data[10:], uint16(len(data)))
	}
	return data
}

// DecodeDeviceIDs reads the structure's bytes. The lengths in it are the
// device's own: DecodeDeviceIDs returns the identifiers before the first that
// exceeds the bytes, together with the error.
func DecodeDeviceIDs(data []byte) (DeviceIDs, error) {
	const name = "STORAGE_DEVICE_ID_DESCRIPTOR"
	if err := atLeast(name, data, deviceIDsHeader); err != nil {
		return nil, err
	}
	if size := le.Uint32(data[4:]); uint64(size) < uint64(len(data)) && size >= deviceIDsHeader {
		data = data[:size]
	}
	var ids DeviceIDs
	count, rest := le.Uint32(data[8:]), data[deviceIDsHeader:]
	for i := range count {
		if len(rest) < identifierOffset {
			return ids, malformed(name, "identifier %d of %d has %d bytes", i+1, count, len(rest))
		}
		size, next := int(le.Uint16(rest[8:])), int(le.Uint16(rest[10:]))
		if identifierOffset+size > len(rest) {
			return ids, malformed(name, "identifier %d of %d has %d bytes of %d", i+1, count, size, len(rest)-identifierOffset)
		}
		ids = append(ids, DeviceID{
			CodeSet: le.Uint32(rest), Type: le.Uint32(rest[4:]), Association: le.Uint32(rest[12:]),
			Identifier: append([]byte(nil), rest[identifierOffset:identifierOffset+size]...),
		})
		if i == count-1 {
			break
		}
		if next < identifierOffset || next > len(rest) {
			return ids, malformed(name, "identifier %d of %d is followed at %d of %d", i+1, count, next, len(rest))
		}
		rest = rest[next:]
	}
	return ids, nil
}
