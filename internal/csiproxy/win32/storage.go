package win32

// DeviceNumber is STORAGE_DEVICE_NUMBER, of IOCTL_STORAGE_GET_DEVICE_NUMBER.
type DeviceNumber struct {
	Type      uint32 // DeviceType…
	Number    uint32
	Partition uint32 // 0 is the disk itself; 0xFFFFFFFF: cannot be partitioned
}

const deviceNumberSize = 12

// Encode returns the structure's bytes.
func (n DeviceNumber) Encode() []byte {
	data := make([]byte, deviceNumberSize)
	le.PutUint32(data, n.Type)
	le.PutUint32(data[4:], n.Number)
	le.PutUint32(data[8:], n.Partition)
	return data
}

// DecodeDeviceNumber reads the structure's bytes.
func DecodeDeviceNumber(data []byte) (DeviceNumber, error) {
	if err := atLeast("STORAGE_DEVICE_NUMBER", data, deviceNumberSize); err != nil {
		return DeviceNumber{}, err
	}
	return DeviceNumber{Type: le.Uint32(data), Number: le.Uint32(data[4:]), Partition: le.Uint32(data[8:])}, nil
}

// SCSIAddress is SCSI_ADDRESS, of IOCTL_SCSI_GET_ADDRESS.
type SCSIAddress struct{ Port, Path, Target, LUN uint8 }

const scsiAddressSize = 8

// Encode returns the structure's bytes.
func (a SCSIAddress) Encode() []byte {
	return append(le.AppendUint32(nil, scsiAddressSize), a.Port, a.Path, a.Target, a.LUN)
}

// DecodeSCSIAddress reads the structure's bytes.
func DecodeSCSIAddress(data []byte) (SCSIAddress, error) {
	if err := atLeast("SCSI_ADDRESS", data, scsiAddressSize); err != nil {
		return SCSIAddress{}, err
	}
	return SCSIAddress{Port: data[4], Path: data[5], Target: data[6], LUN: data[7]}, nil
}

// Properties for IOCTL_STORAGE_QUERY_PROPERTY (STORAGE_PROPERTY_ID).
const (
	PropertyDevice   uint32 = 0 // StorageDeviceProperty: DeviceDescriptor
	PropertyDeviceID uint32 = 2 // StorageDeviceIdProperty: DeviceIDs
)

// Kinds of queries (STORAGE_QUERY_TYPE).
const (
	QueryStandard uint32 = 0
	QueryExists   uint32 = 1
)

// PropertyQuery is STORAGE_PROPERTY_QUERY without additional parameters.
type PropertyQuery struct{ Property, Type uint32 }

const (
	propertyQuerySize  = 12
	propertyQueryFixed = 8 // without AdditionalParameters
)

// Encode returns the structure's bytes.
func (q PropertyQuery) Encode() []byte {
	data := make([]byte, propertyQuerySize)
	le.PutUint32(data, q.Property)
	le.PutUint32(data[4:], q.Type)
	return data
}

// DecodePropertyQuery reads the structure's bytes.
func DecodePropertyQuery(data []byte) (PropertyQuery, error) {
	if err := atLeast("STORAGE_PROPERTY_QUERY", data, propertyQueryFixed); err != nil {
		return PropertyQuery{}, err
	}
	return PropertyQuery{Property: le.Uint32(data), Type: le.Uint32(data[4:])}, nil
}

// DescriptorSize returns the Size in the STORAGE_DESCRIPTOR_HEADER at the beginning of
// each answer of IOCTL_STORAGE_QUERY_PROPERTY: the bytes of the whole answer, of which
// the buffer may have only a part.
func DescriptorSize(data []byte) (uint32, error) {
	if err := atLeast("STORAGE_DESCRIPTOR_HEADER", data, 8); err != nil {
		return 0, err
	}
	return le.Uint32(data[4:]), nil
}

// DeviceDescriptor is STORAGE_DEVICE_DESCRIPTOR. Texts are the device's, with the blanks
// that pad them; "" if it has none.
type DeviceDescriptor struct {
	BusType                           uint32 // Bus…
	Removable                         bool
	Vendor, Product, Revision, Serial string
}

const deviceDescriptorSize = 40

// deviceDescriptorTexts is the offset of the raw properties.
const deviceDescriptorTexts = 36

// Encode returns the structure's bytes; Size is theirs.
func (d DeviceDescriptor) Encode() []byte {
	data := make([]byte, deviceDescriptorTexts)
	data[10] = bit(d.Removable)
	le.PutUint32(data, deviceDescriptorSize)
	le.PutUint32(data[28:], d.BusType)
	for i, text := range []string{d.Vendor, d.Product, d.Revision, d.Serial} {
		if text == "" {
			continue
		}
		le.PutUint32(data[12+4*i:], uint32(len(data)))
		data = append(append(data, text...), 0)
	}
	le.PutUint32(data[32:], uint32(len(data)-deviceDescriptorTexts))
	for len(data) < deviceDescriptorSize {
		data = append(data, 0)
	}
	le.PutUint32(data[4:], uint32(len(data)))
	return data
}

// DecodeDeviceDescriptor reads the structure's bytes. An offset of 0 or 0xFFFFFFFF
// means no text; some drivers use the latter for the serial.
func DecodeDeviceDescriptor(data []byte) (DeviceDescriptor, error) {
	const name = "STORAGE_DEVICE_DESCRIPTOR"
	if err := atLeast(name, data, deviceDescriptorTexts); err != nil {
		return DeviceDescriptor{}, err
	}
	if size := le.Uint32(data[4:]); uint64(size) < uint64(len(data)) && size >= deviceDescriptorTexts {
		data = data[:size]
	}
	var texts [4]string
	for i := range texts {
		offset := le.Uint32(data[12+4*i:])
		if offset == 0 || offset == 0xFFFFFFFF {
			continue
		}
		if uint64(offset) >= uint64(len(data)) {
			return DeviceDescriptor{}, malformed(name, "a text at %d of %d bytes", offset, len(data))
		}
		texts[i] = string(untilNUL(data[offset:]))
	}
	return DeviceDescriptor{
		BusType: le.Uint32(data[28:]), Removable: data[10] != 0,
		Vendor: texts[0], Product: texts[1], Revision: texts[2], Serial: texts[3],
	}, nil
}

func bit(set bool) byte {
	if set {
		return 1
	}
	return 0
}
