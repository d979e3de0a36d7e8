package win32

import (
	"bytes"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// roundTrips fuzzes a decoder with any bytes: it must not panic, and what it
// understands must be what it understands of its own encoding.
func roundTrips[T interface{ Encode() []byte }](f *testing.F, decode func([]byte) (T, error)) {
	for _, s := range structures() {
		f.Add(s.value.Encode())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		value, err := decode(data)
		if err != nil {
			return
		}
		again, err := decode(value.Encode())
		if err != nil {
			t.Fatalf("%+v: its own encoding: %v", value, err)
		}
		if diff := cmp.Diff(value, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("decoded, encoded and decoded (-once +twice):\n%s", diff)
		}
	})
}

func FuzzDecodeDeviceNumber(f *testing.F)      { roundTrips(f, DecodeDeviceNumber) }
func FuzzDecodeSCSIAddress(f *testing.F)       { roundTrips(f, DecodeSCSIAddress) }
func FuzzDecodePropertyQuery(f *testing.F)     { roundTrips(f, DecodePropertyQuery) }
func FuzzDecodeDeviceDescriptor(f *testing.F)  { roundTrips(f, DecodeDeviceDescriptor) }
func FuzzDecodeDeviceIDs(f *testing.F)         { roundTrips(f, DecodeDeviceIDs) }
func FuzzDecodeCreateDisk(f *testing.F)        { roundTrips(f, DecodeCreateDisk) }
func FuzzDecodeDriveLayout(f *testing.F)       { roundTrips(f, DecodeDriveLayout) }
func FuzzDecodeLengthInfo(f *testing.F)        { roundTrips(f, DecodeLengthInfo) }
func FuzzDecodeGeometry(f *testing.F)          { roundTrips(f, DecodeGeometry) }
func FuzzDecodeSetDiskAttributes(f *testing.F) { roundTrips(f, DecodeSetDiskAttributes) }
func FuzzDecodeGetDiskAttributes(f *testing.F) { roundTrips(f, DecodeGetDiskAttributes) }
func FuzzDecodeGrowPartition(f *testing.F)     { roundTrips(f, DecodeGrowPartition) }
func FuzzDecodeExtendVolume(f *testing.F)      { roundTrips(f, DecodeExtendVolume) }
func FuzzDecodeVolumeDiskExtents(f *testing.F) { roundTrips(f, DecodeVolumeDiskExtents) }
func FuzzDecodeNTFSVolumeData(f *testing.F)    { roundTrips(f, DecodeNTFSVolumeData) }
func FuzzDecodeReparse(f *testing.F)           { roundTrips(f, DecodeReparse) }

func FuzzDecodeDirectory(f *testing.F) {
	f.Add(EncodeDirectory([]FileInfo{{Name: "a"}, {Name: "b", Attributes: 0x410, ReparseTag: ReparseTagSymlink}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := DecodeDirectory(data)
		if err != nil || len(list) == 0 {
			return
		}
		again, err := DecodeDirectory(EncodeDirectory(list))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(list, again); diff != "" {
			t.Fatalf("-once +twice:\n%s", diff)
		}
	})
}

func FuzzSMBIOS(f *testing.F) {
	f.Add(EncodeSMBIOS("ec2-1"))
	f.Add(EncodeSMBIOS(""))
	f.Fuzz(func(t *testing.T, raw []byte) {
		serial, err := SystemSerial(raw)
		if err != nil {
			return
		}
		if again, err := SystemSerial(EncodeSMBIOS(serial)); err != nil || again != serial {
			t.Fatalf("%q became %q, %v", serial, again, err)
		}
	})
}

func FuzzMultiString(f *testing.F) {
	f.Add([]byte("a\x00\x00\x00b\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var units []uint16
		for i := 0; i+1 < len(data); i += 2 {
			units = append(units, le.Uint16(data[i:]))
		}
		list := DecodeMultiString(units)
		if again := DecodeMultiString(EncodeMultiString(list)); !cmp.Equal(list, again) {
			t.Fatalf("%q became %q", list, again)
		}
	})
}

func FuzzParseGUID(f *testing.F) {
	f.Add(PartitionBasicData.String())
	f.Fuzz(func(t *testing.T, text string) {
		g, err := ParseGUID(text)
		if err != nil {
			return
		}
		if again, err := ParseGUID(g.String()); err != nil || again != g {
			t.Fatalf("%q: %v became %v, %v", text, g, again, err)
		}
	})
}

func FuzzReparseOfPaths(f *testing.F) {
	f.Add(`C:\var\lib`)
	f.Add(`\\srv\share\`)
	f.Add(`\\?\Volume{GUID}\`)
	f.Fuzz(func(t *testing.T, path string) {
		path = string(utf16.Decode(utf16.Encode([]rune(path))))
		link := NewSymlink(path)
		back, err := DecodeReparse(link.Encode())
		if len(link.Substitute)+len(path) > 4000 {
			return
		}
		if err != nil || !cmp.Equal(back, link) || !bytes.Equal(back.Encode(), link.Encode()) {
			t.Fatalf("%q: %+v, %v", path, back, err)
		}
	})
}
