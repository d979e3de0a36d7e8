package win32

// DiskExtent is DISK_EXTENT: a run of bytes on a disk.
type DiskExtent struct {
	Disk           uint32
	Offset, Length int64
}

// VolumeDiskExtents is VOLUME_DISK_EXTENTS, of IOCTL_VOLUME_GET_VOLUME_DISK_EXTENTS.
type VolumeDiskExtents []DiskExtent

const (
	volumeDiskExtentsHeader = 8
	diskExtentSize          = 24
)

// VolumeDiskExtentsSize is how many bytes that many extents have.
func VolumeDiskExtentsSize(extents int) int { return volumeDiskExtentsHeader + extents*diskExtentSize }

// Encode returns the structure's bytes.
func (e VolumeDiskExtents) Encode() []byte {
	data := make([]byte, VolumeDiskExtentsSize(len(e)))
	le.PutUint32(data, uint32(len(e)))
	for i, extent := range e {
		at := data[VolumeDiskExtentsSize(i):]
		le.PutUint32(at, extent.Disk)
		le.PutUint64(at[8:], uint64(extent.Offset))
		le.PutUint64(at[16:], uint64(extent.Length))
	}
	return data
}

// DecodeVolumeDiskExtents reads the structure's bytes.
func DecodeVolumeDiskExtents(data []byte) (VolumeDiskExtents, error) {
	const name = "VOLUME_DISK_EXTENTS"
	if err := atLeast(name, data, volumeDiskExtentsHeader); err != nil {
		return nil, err
	}
	count, room := le.Uint32(data), (len(data)-volumeDiskExtentsHeader)/diskExtentSize
	if uint64(count) > uint64(room) {
		return nil, malformed(name, "%d extents in room for %d", count, room)
	}
	var extents VolumeDiskExtents
	for i := range int(count) {
		at := data[VolumeDiskExtentsSize(i):]
		extents = append(extents, DiskExtent{
			Disk: le.Uint32(at), Offset: int64(le.Uint64(at[8:])), Length: int64(le.Uint64(at[16:])),
		})
	}
	return extents, nil
}

// NTFSVolumeData is NTFS_VOLUME_DATA_BUFFER, of FSCTL_GET_NTFS_VOLUME_DATA, as
// far as sizes go.
type NTFSVolumeData struct {
	Serial                          uint64
	Sectors                         int64
	Clusters, FreeClusters          int64
	BytesPerSector, BytesPerCluster uint32
}

const ntfsVolumeDataSize = 96

// Encode returns the structure's bytes.
func (v NTFSVolumeData) Encode() []byte {
	data := make([]byte, ntfsVolumeDataSize)
	le.PutUint64(data, v.Serial)
	le.PutUint64(data[8:], uint64(v.Sectors))
	le.PutUint64(data[16:], uint64(v.Clusters))
	le.PutUint64(data[24:], uint64(v.FreeClusters))
	le.PutUint32(data[40:], v.BytesPerSector)
	le.PutUint32(data[44:], v.BytesPerCluster)
	return data
}

// DecodeNTFSVolumeData reads the structure's bytes.
func DecodeNTFSVolumeData(data []byte) (NTFSVolumeData, error) {
	if err := atLeast("NTFS_VOLUME_DATA_BUFFER", data, ntfsVolumeDataSize); err != nil {
		return NTFSVolumeData{}, err
	}
	return NTFSVolumeData{
		Serial: le.Uint64(data), Sectors: int64(le.Uint64(data[8:])),
		Clusters: int64(le.Uint64(data[16:])), FreeClusters: int64(le.Uint64(data[24:])),
		BytesPerSector: le.Uint32(data[40:]), BytesPerCluster: le.Uint32(data[44:]),
	}, nil
}

// ExtendVolume is the argument of FSCTL_EXTEND_VOLUME: the volume's new size in
// sectors.
type ExtendVolume struct{ Sectors int64 }

// Encode returns the structure's bytes.
func (e ExtendVolume) Encode() []byte { return le.AppendUint64(nil, uint64(e.Sectors)) }

// DecodeExtendVolume reads the structure's bytes.
func DecodeExtendVolume(data []byte) (ExtendVolume, error) {
	if err := atLeast("FSCTL_EXTEND_VOLUME", data, 8); err != nil {
		return ExtendVolume{}, err
	}
	return ExtendVolume{Sectors: int64(le.Uint64(data))}, nil
}
