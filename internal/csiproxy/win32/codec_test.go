package win32

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// structure is one row of the tables below: a value, its bytes by hand from the
// headers' offsets, and how the bytes are read again.
type structure struct {
	name   string
	value  interface{ Encode() []byte }
	golden string // hex; blanks and … are left out, "00*12" is twelve zero bytes
	decode func([]byte) (any, error)
}

func decoder[T any](f func([]byte) (T, error)) func([]byte) (any, error) {
	return func(data []byte) (any, error) { return f(data) }
}

const (
	diskID      = "{01234567-89ab-cdef-0123-456789abcdef}"
	diskIDBytes = "67452301 ab89 efcd 0123 456789abcdef"
	partID      = "{11223344-5566-7788-99aa-bbccddeeff00}"
	partIDBytes = "44332211 6655 8877 99aa bbccddeeff00"
)

func guid(text string) GUID {
	g, err := ParseGUID(text)
	if err != nil {
		panic(err)
	}
	return g
}

func structures() []structure {
	return append(deviceStructures(), append(layoutStructures(), volumeStructures()...)...)
}

func deviceStructures() []structure {
	return []structure{
		{"STORAGE_DEVICE_NUMBER", DeviceNumber{Type: DeviceTypeDisk, Number: 3, Partition: 2},
			"07000000 03000000 02000000", decoder(DecodeDeviceNumber)},
		{"SCSI_ADDRESS", SCSIAddress{Port: 1, Path: 2, Target: 3, LUN: 4},
			"08000000 01 02 03 04", decoder(DecodeSCSIAddress)},
		{"STORAGE_PROPERTY_QUERY", PropertyQuery{Property: PropertyDeviceID},
			"02000000 00000000 00000000", decoder(DecodePropertyQuery)},
		{"STORAGE_DEVICE_DESCRIPTOR without texts", DeviceDescriptor{BusType: BusSAS},
			"28000000 28000000 00000000 00*12 00000000 0a000000 00000000 00000000", decoder(DecodeDeviceDescriptor)},
		{"STORAGE_DEVICE_DESCRIPTOR of an EBS volume",
			DeviceDescriptor{BusType: BusNVMe, Product: "EBS", Serial: "vol0123_00000001."},
			"28000000 3a000000 00000000 00000000 24000000 00000000 28000000 11000000 16000000" +
				"454253 00" + "766f6c303132335f30303030303030312e 00", decoder(DecodeDeviceDescriptor)},
		{"STORAGE_DEVICE_ID_DESCRIPTOR", DeviceIDs{
			{CodeSet: CodeSetBinary, Type: 3, Association: AssociationDevice, Identifier: []byte{0x60, 0x0a, 0x09, 0x80, 0x01}},
			{CodeSet: CodeSetASCII, Type: 1, Association: AssociationPort, Identifier: []byte("AWS")},
		}, "10000000 38000000 02000000" +
			"01000000 03000000 0500 1800 00000000 600a098001 000000" +
			"02000000 01000000 0300 0000 01000000 415753 00", decoder(DecodeDeviceIDs)},
		{"GET_LENGTH_INFORMATION", LengthInfo{Length: 10 << 30}, "00000080 02000000", decoder(DecodeLengthInfo)},
		{"DISK_GEOMETRY_EX", Geometry{
			Cylinders: 5, MediaType: 12, TracksPerCylinder: 255, SectorsPerTrack: 63, BytesPerSector: 512, DiskSize: 1 << 30,
		},
			"05000000 00000000 0c000000 ff000000 3f000000 00020000 00000040 00000000 00*8", decoder(DecodeGeometry)},
		{"SET_DISK_ATTRIBUTES", SetDiskAttributes{Persist: true, Attributes: 0, Mask: DiskAttributeOffline | DiskAttributeReadOnly},
			"28000000 01 000000 00*8 03000000 00000000 00*16", decoder(DecodeSetDiskAttributes)},
		{"GET_DISK_ATTRIBUTES", GetDiskAttributes{Attributes: DiskAttributeOffline},
			"10000000 00000000 01000000 00000000", decoder(DecodeGetDiskAttributes)},
	}
}

func layoutStructures() []structure {
	return []structure{
		{"CREATE_DISK for a GPT", CreateDisk{Style: StyleGPT, DiskID: guid(diskID), MaxPartitions: 128},
			"01000000" + diskIDBytes + "80000000", decoder(DecodeCreateDisk)},
		{"CREATE_DISK for an MBR", CreateDisk{Style: StyleMBR, Signature: 0xcafe},
			"00000000 feca0000 00*16", decoder(DecodeCreateDisk)},
		{"DRIVE_LAYOUT_INFORMATION_EX of a raw disk", DriveLayout{Style: StyleRaw},
			"02000000 00000000 00*40", decoder(DecodeDriveLayout)},
		{"DRIVE_LAYOUT_INFORMATION_EX of a GPT", DriveLayout{
			Style: StyleGPT, DiskID: guid(diskID), UsableOffset: 17408, UsableLength: 0x3ffff7a00, MaxPartitions: 128,
			Partitions: []Partition{{
				Style: StyleGPT, Offset: 17 << 20, Length: 1 << 30, Number: 2, Rewrite: true,
				Type: PartitionBasicData, ID: guid(partID), Attributes: GPTNoDriveLetter, Name: "Basic",
			}},
		}, "01000000 01000000" + diskIDBytes + "00440000 00000000 007affff 03000000 80000000 00000000" +
			"01000000 00000000 00001001 00000000 00000040 00000000 02000000 01 00 0000" +
			"a2a0d0eb e5b9 3344 87c0 68b6b72699c7" + partIDBytes + "00000000 00000080" +
			"4200 6100 7300 6900 6300 00*62", decoder(DecodeDriveLayout)},
		{"DRIVE_LAYOUT_INFORMATION_EX of an MBR", DriveLayout{
			Style: StyleMBR, Signature: 0xcafe,
			Partitions: []Partition{{Style: StyleMBR, Offset: 1 << 20, Length: 2 << 20, Number: 1, MBRType: 7, Boot: true, Hidden: 2048}},
		}, "00000000 01000000 feca0000 00*36 " +
			"00000000 00000000 00001000 00000000 00002000 00000000 01000000 00 00 0000" +
			"07 01 01 00 00080000 00*104", decoder(DecodeDriveLayout)},
		{"DISK_GROW_PARTITION", GrowPartition{Number: 2, Bytes: 1 << 20},
			"02000000 00000000 00001000 00000000", decoder(DecodeGrowPartition)},
	}
}

func volumeStructures() []structure {
	return []structure{
		{"VOLUME_DISK_EXTENTS", VolumeDiskExtents{{Disk: 1, Offset: 17 << 20, Length: 1 << 30}},
			"01000000 00000000 01000000 00000000 00001001 00000000 00000040 00000000", decoder(DecodeVolumeDiskExtents)},
		{"VOLUME_DISK_EXTENTS of none", VolumeDiskExtents(nil), "00*8", decoder(DecodeVolumeDiskExtents)},
		{"NTFS_VOLUME_DATA_BUFFER", NTFSVolumeData{
			Serial: 1, Sectors: 2, Clusters: 3, FreeClusters: 4, BytesPerSector: 512, BytesPerCluster: 4096,
		},
			"01000000 00000000 02000000 00000000 03000000 00000000 04000000 00000000 00*8 00020000 00100000 00*48", decoder(DecodeNTFSVolumeData)},
		{"FSCTL_EXTEND_VOLUME", ExtendVolume{Sectors: 0x123456789}, "89674523 01000000", decoder(DecodeExtendVolume)},
		{"REPARSE_DATA_BUFFER of a mounted folder", Reparse{Tag: ReparseTagMountPoint, Substitute: `\??\V`},
			"030000a0 1600 0000 0000 0a00 0c00 0000" + "5c00 3f00 3f00 5c00 5600 0000" + "0000", decoder(DecodeReparse)},
		{"REPARSE_DATA_BUFFER of a link", NewSymlink(`C:\x`),
			"0c0000a0 2800 0000 0000 1000 1200 0800 00000000" +
				"5c00 3f00 3f00 5c00 4300 3a00 5c00 7800 0000" + "4300 3a00 5c00 7800 0000", decoder(DecodeReparse)},
		{"REPARSE_DATA_BUFFER of a relative link", Reparse{Tag: ReparseTagSymlink, Substitute: "a", Print: "b", Relative: true},
			"0c0000a0 1400 0000 0000 0200 0400 0200 01000000" + "6100 0000 6200 0000", decoder(DecodeReparse)},
		{"REPARSE_DATA_BUFFER of another tag", Reparse{Tag: ReparseTagAFUnix, Data: []byte{1, 2, 3}},
			"23000080 0300 0000 010203", decoder(DecodeReparse)},
	}
}

// unhex reads the notation of structure.golden.
func unhex(t *testing.T, text string) []byte {
	t.Helper()
	var data []byte
	for _, word := range strings.Fields(text) {
		if count, ok := strings.CutPrefix(word, "00*"); ok {
			n := 0
			for _, digit := range count {
				n = n*10 + int(digit-'0')
			}
			data = append(data, make([]byte, n)...)
			continue
		}
		part, err := hex.DecodeString(word)
		if err != nil {
			t.Fatalf("%q: %v", word, err)
		}
		data = append(data, part...)
	}
	return data
}

func TestStructures_haveTheBytesOfTheHeaders(t *testing.T) {
	for _, s := range structures() {
		t.Run(s.name, func(t *testing.T) {
			want := unhex(t, s.golden)
			got := s.value.Encode()
			if diff := cmp.Diff(hex.Dump(want), hex.Dump(got)); diff != "" {
				t.Fatalf("encoded (-want +got):\n%s", diff)
			}
			back, err := s.decode(want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(any(s.value), back); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStructures_refuseTheirOwnBeginning(t *testing.T) {
	// What may be missing at the end: padding, unions that are not read.
	tolerated := map[string]int{
		"STORAGE_PROPERTY_QUERY":                     4,
		"DISK_GEOMETRY_EX":                           8,
		"STORAGE_DEVICE_DESCRIPTOR without texts":    4,
		"STORAGE_DEVICE_DESCRIPTOR of an EBS volume": 18, // a text ends where the bytes do
		"STORAGE_DEVICE_ID_DESCRIPTOR":               1,
	}
	for _, s := range structures() {
		t.Run(s.name, func(t *testing.T) {
			whole := s.value.Encode()
			for n := range len(whole) - tolerated[s.name] {
				if _, err := s.decode(whole[:n:n]); !errors.Is(err, ErrMalformed) {
					t.Fatalf("%d of %d bytes: %v", n, len(whole), err)
				}
			}
		})
	}
}

func TestDecoders_boundCountsAndOffsets(t *testing.T) {
	layout := DriveLayout{Style: StyleGPT, Partitions: make([]Partition, 1)}.Encode()
	le.PutUint32(layout[4:], 0xFFFFFFFF)
	extents := VolumeDiskExtents{{}}.Encode()
	le.PutUint32(extents, 2)
	descriptor := DeviceDescriptor{Serial: "x"}.Encode()
	le.PutUint32(descriptor[24:], uint32(len(descriptor)))
	backwards := DeviceIDs{{Identifier: []byte("abcd")}, {}}.Encode()
	le.PutUint16(backwards[12+10:], 4)
	reparse := NewSymlink(`C:\x`).Encode()
	le.PutUint16(reparse[10:], 0xFFFE)
	odd := NewSymlink(`C:\x`).Encode()
	le.PutUint16(odd[14:], 3)
	for name, decode := range map[string]func() error{
		"partitions":          func() error { _, err := DecodeDriveLayout(layout); return err },
		"extents":             func() error { _, err := DecodeVolumeDiskExtents(extents); return err },
		"offset of a text":    func() error { _, err := DecodeDeviceDescriptor(descriptor); return err },
		"identifiers overlap": func() error { _, err := DecodeDeviceIDs(backwards); return err },
		"length of a name":    func() error { _, err := DecodeReparse(reparse); return err },
		"half a letter":       func() error { _, err := DecodeReparse(odd); return err },
	} {
		if err := decode(); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDeviceDescriptor_knowsBothWordsForNoSerial(t *testing.T) {
	for _, offset := range []uint32{0, 0xFFFFFFFF} {
		data := DeviceDescriptor{BusType: BusSATA, Serial: "x"}.Encode()
		le.PutUint32(data[24:], offset)
		if d, err := DecodeDeviceDescriptor(data); err != nil || d.Serial != "" {
			t.Errorf("offset %#x: %q, %v", offset, d.Serial, err)
		}
	}
}

func TestDeviceIDs_giveWhatPrecedesTheDamage(t *testing.T) {
	data := DeviceIDs{{CodeSet: CodeSetBinary, Identifier: []byte{1, 2}}, {Identifier: []byte{3}}}.Encode()
	ids, err := DecodeDeviceIDs(data[:len(data)-8])
	if !errors.Is(err, ErrMalformed) || len(ids) != 1 || string(ids[0].Identifier) != "\x01\x02" {
		t.Errorf("%v, %v", ids, err)
	}
}
