package win32

// PartitionStyle is PARTITION_STYLE. WMI has other numbers for the styles.
type PartitionStyle uint32

// The styles.
const (
	StyleMBR PartitionStyle = 0
	StyleGPT PartitionStyle = 1
	StyleRaw PartitionStyle = 2
)

// String is the style's name.
func (s PartitionStyle) String() string {
	switch s {
	case StyleMBR:
		return "MBR"
	case StyleGPT:
		return "GPT"
	case StyleRaw:
		return "raw"
	}
	return "unknown partition style"
}

// CreateDisk is CREATE_DISK, for IOCTL_DISK_CREATE_DISK.
type CreateDisk struct {
	Style         PartitionStyle
	DiskID        GUID   // of a GPT
	MaxPartitions uint32 // of a GPT; 128
	Signature     uint32 // of an MBR
}

const createDiskSize = 24

// Encode returns the structure's bytes.
func (c CreateDisk) Encode() []byte {
	data := make([]byte, createDiskSize)
	le.PutUint32(data, uint32(c.Style))
	switch c.Style {
	case StyleGPT:
		copy(data[4:], c.DiskID[:])
		le.PutUint32(data[20:], c.MaxPartitions)
	case StyleMBR:
		le.PutUint32(data[4:], c.Signature)
	}
	return data
}

// DecodeCreateDisk reads the structure's bytes.
func DecodeCreateDisk(data []byte) (CreateDisk, error) {
	if err := atLeast("CREATE_DISK", data, createDiskSize); err != nil {
		return CreateDisk{}, err
	}
	c := CreateDisk{Style: PartitionStyle(le.Uint32(data))}
	switch c.Style {
	case StyleGPT:
		c.DiskID, c.MaxPartitions = guidAt(data[4:]), le.Uint32(data[20:])
	case StyleMBR:
		c.Signature = le.Uint32(data[4:])
	}
	return c, nil
}

// Partition is PARTITION_INFORMATION_EX; offsets and lengths are in bytes.
type Partition struct {
	Style          PartitionStyle
	Offset, Length int64
	Number         uint32 // from 1; 0 for none
	Rewrite        bool   // IOCTL_DISK_SET_DRIVE_LAYOUT_EX writes only these

	// Of a GPT. The name has up to 36 UTF-16 units.
	Type, ID   GUID
	Attributes uint64
	Name       string

	// Of an MBR. An entry of type 0 is unused.
	MBRType uint8
	Boot    bool
	Hidden  uint32 // sectors before it
}

const (
	partitionSize     = 144
	partitionNameSize = 72
)

func (p Partition) put(data []byte) {
	le.PutUint32(data, uint32(p.Style))
	le.PutUint64(data[8:], uint64(p.Offset))
	le.PutUint64(data[16:], uint64(p.Length))
	le.PutUint32(data[24:], p.Number)
	data[28] = bit(p.Rewrite)
	switch p.Style {
	case StyleGPT:
		copy(data[32:], p.Type[:])
		copy(data[48:], p.ID[:])
		le.PutUint64(data[64:], p.Attributes)
		putWide(data[72:72+partitionNameSize], p.Name)
	case StyleMBR:
		data[32], data[33] = p.MBRType, bit(p.Boot)
		data[34] = bit(p.MBRType != 0) // RecognizedPartition
		le.PutUint32(data[36:], p.Hidden)
	}
}

func partitionAt(data []byte) Partition {
	p := Partition{
		Style:  PartitionStyle(le.Uint32(data)),
		Offset: int64(le.Uint64(data[8:])), Length: int64(le.Uint64(data[16:])),
		Number: le.Uint32(data[24:]), Rewrite: data[28] != 0,
	}
	switch p.Style {
	case StyleGPT:
		p.Type, p.ID, p.Attributes = guidAt(data[32:]), guidAt(data[48:]), le.Uint64(data[64:])
		p.Name = wideZ(data[72 : 72+partitionNameSize])
	case StyleMBR:
		p.MBRType, p.Boot, p.Hidden = data[32], data[33] != 0, le.Uint32(data[36:])
	}
	return p
}

// DriveLayout is DRIVE_LAYOUT_INFORMATION_EX.
type DriveLayout struct {
	Style PartitionStyle
	// Of a GPT: the bytes that partitions may have.
	DiskID                     GUID
	UsableOffset, UsableLength int64
	MaxPartitions              uint32
	Signature                  uint32 // of an MBR
	Partitions                 []Partition
}

const driveLayoutHeader = 48

// DriveLayoutSize is the size in bytes of a layout with that many partitions, for the
// buffer of IOCTL_DISK_GET_DRIVE_LAYOUT_EX.
func DriveLayoutSize(partitions int) int { return driveLayoutHeader + partitions*partitionSize }

// Encode returns the structure's bytes.
func (l DriveLayout) Encode() []byte {
	data := make([]byte, DriveLayoutSize(len(l.Partitions)))
	le.PutUint32(data, uint32(l.Style))
	le.PutUint32(data[4:], uint32(len(l.Partitions)))
	switch l.Style {
	case StyleGPT:
		copy(data[8:], l.DiskID[:])
		le.PutUint64(data[24:], uint64(l.UsableOffset))
		le.PutUint64(data[32:], uint64(l.UsableLength))
		le.PutUint32(data[40:], l.MaxPartitions)
	case StyleMBR:
		le.PutUint32(data[8:], l.Signature)
	}
	for i, partition := range l.Partitions {
		partition.put(data[DriveLayoutSize(i):])
	}
	return data
}

// DecodeDriveLayout reads the structure's bytes.
func DecodeDriveLayout(data []byte) (DriveLayout, error) {
	const name = "DRIVE_LAYOUT_INFORMATION_EX"
	if err := atLeast(name, data, driveLayoutHeader); err != nil {
		return DriveLayout{}, err
	}
	l := DriveLayout{Style: PartitionStyle(le.Uint32(data))}
	switch l.Style {
	case StyleGPT:
		l.DiskID, l.MaxPartitions = guidAt(data[8:]), le.Uint32(data[40:])
		l.UsableOffset, l.UsableLength = int64(le.Uint64(data[24:])), int64(le.Uint64(data[32:]))
	case StyleMBR:
		l.Signature = le.Uint32(data[8:])
	}
	count := le.Uint32(data[4:])
	if room := (len(data) - driveLayoutHeader) / partitionSize; uint64(count) > uint64(room) {
		return DriveLayout{}, malformed(name, "%d partitions in room for %d", count, room)
	}
	for i := range int(count) {
		l.Partitions = append(l.Partitions, partitionAt(data[DriveLayoutSize(i):]))
	}
	return l, nil
}

// GrowPartition is DISK_GROW_PARTITION, for IOCTL_DISK_GROW_PARTITION.
type GrowPartition struct {
	Number uint32
	Bytes  int64 // how many more
}

const growPartitionSize = 16

// Encode returns the structure's bytes.
func (g GrowPartition) Encode() []byte {
	data := make([]byte, growPartitionSize)
	le.PutUint32(data, g.Number)
	le.PutUint64(data[8:], uint64(g.Bytes))
	return data
}

// DecodeGrowPartition reads the structure's bytes.
func DecodeGrowPartition(data []byte) (GrowPartition, error) {
	if err := atLeast("DISK_GROW_PARTITION", data, growPartitionSize); err != nil {
		return GrowPartition{}, err
	}
	return GrowPartition{Number: le.Uint32(data), Bytes: int64(le.Uint64(data[8:]))}, nil
}
