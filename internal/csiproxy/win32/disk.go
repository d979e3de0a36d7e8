package win32

// LengthInfo is GET_LENGTH_INFORMATION, of IOCTL_DISK_GET_LENGTH_INFO.
type LengthInfo struct{ Length int64 } // bytes

// Encode returns the structure's bytes.
func (i LengthInfo) Encode() []byte { return le.AppendUint64(nil, uint64(i.Length)) }

// DecodeLengthInfo reads the structure's bytes.
func DecodeLengthInfo(data []byte) (LengthInfo, error) {
	if err := atLeast("GET_LENGTH_INFORMATION", data, 8); err != nil {
		return LengthInfo{}, err
	}
	return LengthInfo{Length: int64(le.Uint64(data))}, nil
}

// Geometry is DISK_GEOMETRY_EX without its details.
type Geometry struct {
	Cylinders         int64
	MediaType         uint32 // 12: FixedMedia
	TracksPerCylinder uint32
	SectorsPerTrack   uint32
	BytesPerSector    uint32
	DiskSize          int64 // bytes
}

const (
	geometrySize  = 40
	geometryFixed = 32 // without Data
	// DiskGeometrySize is the size of DISK_GEOMETRY, the first part of
	// DISK_GEOMETRY_EX and the answer of IOCTL_DISK_UPDATE_DRIVE_SIZE.
	DiskGeometrySize = 24
)

// Encode returns the structure's bytes.
func (g Geometry) Encode() []byte {
	data := make([]byte, geometrySize)
	le.PutUint64(data, uint64(g.Cylinders))
	le.PutUint32(data[8:], g.MediaType)
	le.PutUint32(data[12:], g.TracksPerCylinder)
	le.PutUint32(data[16:], g.SectorsPerTrack)
	le.PutUint32(data[20:], g.BytesPerSector)
	le.PutUint64(data[24:], uint64(g.DiskSize))
	return data
}

// DecodeGeometry reads the structure's bytes.
func DecodeGeometry(data []byte) (Geometry, error) {
	if err := atLeast("DISK_GEOMETRY_EX", data, geometryFixed); err != nil {
		return Geometry{}, err
	}
	return Geometry{
		Cylinders: int64(le.Uint64(data)), MediaType: le.Uint32(data[8:]),
		TracksPerCylinder: le.Uint32(data[12:]), SectorsPerTrack: le.Uint32(data[16:]),
		BytesPerSector: le.Uint32(data[20:]), DiskSize: int64(le.Uint64(data[24:])),
	}, nil
}

// SetDiskAttributes is SET_DISK_ATTRIBUTES, for IOCTL_DISK_SET_DISK_ATTRIBUTES:
// the attributes in Mask become those in Attributes.
type SetDiskAttributes struct {
	Persist          bool // over restarts
	Attributes, Mask uint64
}

const setDiskAttributesSize = 40

// Encode returns the structure's bytes.
func (a SetDiskAttributes) Encode() []byte {
	data := make([]byte, setDiskAttributesSize)
	le.PutUint32(data, setDiskAttributesSize)
	data[4] = bit(a.Persist)
	le.PutUint64(data[8:], a.Attributes)
	le.PutUint64(data[16:], a.Mask)
	return data
}

// DecodeSetDiskAttributes reads the structure's bytes.
func DecodeSetDiskAttributes(data []byte) (SetDiskAttributes, error) {
	const name = "SET_DISK_ATTRIBUTES"
	if err := atLeast(name, data, setDiskAttributesSize); err != nil {
		return SetDiskAttributes{}, err
	}
	if version := le.Uint32(data); version != setDiskAttributesSize {
		return SetDiskAttributes{}, malformed(name, "version %d", version)
	}
	return SetDiskAttributes{Persist: data[4] != 0, Attributes: le.Uint64(data[8:]), Mask: le.Uint64(data[16:])}, nil
}

// GetDiskAttributes is GET_DISK_ATTRIBUTES, of IOCTL_DISK_GET_DISK_ATTRIBUTES.
type GetDiskAttributes struct{ Attributes uint64 }

const getDiskAttributesSize = 16

// Encode returns the structure's bytes.
func (a GetDiskAttributes) Encode() []byte {
	data := make([]byte, getDiskAttributesSize)
	le.PutUint32(data, getDiskAttributesSize)
	le.PutUint64(data[8:], a.Attributes)
	return data
}

// DecodeGetDiskAttributes reads the structure's bytes.
func DecodeGetDiskAttributes(data []byte) (GetDiskAttributes, error) {
	if err := atLeast("GET_DISK_ATTRIBUTES", data, getDiskAttributesSize); err != nil {
		return GetDiskAttributes{}, err
	}
	return GetDiskAttributes{Attributes: le.Uint64(data[8:])}, nil
}
