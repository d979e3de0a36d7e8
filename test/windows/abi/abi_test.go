//go:build wine

package abi

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

const compiler = "x86_64-w64-mingw32-gcc"

// headers are what the C program says.
type headers struct {
	codes map[string]uint64
	bytes map[string][]byte
}

// ask compiles the C program and runs it under wine. Both
// are there once test/windows/wine/setup.sh --with-mingw has run.
func ask(t *testing.T) headers {
	t.Helper()
	if _, err := exec.LookPath(compiler); err != nil {
		t.Fatalf("no C compiler for Windows: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	program := filepath.Join(t.TempDir(), "abi.exe")
	if out, err := exec.CommandContext(ctx, compiler, "-Wall", "-O1", "-o", program, "testdata/abi.c", "-luuid").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var stderr bytes.Buffer
	run := exec.CommandContext(ctx, "../wine/run.sh", program)
	run.Stderr = &stderr
	out, err := run.Output()
	if err != nil {
		t.Fatalf("the C program does not run: %v\n%s", err, stderr.String())
	}
	return parse(t, string(out))
}

func parse(t *testing.T, out string) headers {
	t.Helper()
	h := headers{codes: map[string]uint64{}, bytes: map[string][]byte{}}
	for line := range strings.Lines(out) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, value, _ := strings.Cut(rest, " ")
		var err error
		switch kind {
		case "code":
			h.codes[name], err = strconv.ParseUint(value, 0, 64)
		case "bytes":
			h.bytes[name], err = hex.DecodeString(value)
		default:
			err = fmt.Errorf("unknown kind %q", kind)
		}
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	return h
}

// structure is a value and how its bytes are read.
type structure struct {
	value  interface{ Encode() []byte }
	decode func([]byte) (any, error)
}

func of[T interface{ Encode() []byte }](value T, decode func([]byte) (T, error)) structure {
	return structure{value, func(data []byte) (any, error) { return decode(data) }}
}

func guid(t *testing.T, text string) win32.GUID {
	t.Helper()
	g, err := win32.ParseGUID(text)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// structures are the values that abi.c fills in.
func structures(t *testing.T) map[string]structure {
	disk, part := guid(t, "{01234567-89ab-cdef-0123-456789abcdef}"), guid(t, "{11223344-5566-7788-99aa-bbccddeeff00}")
	return map[string]structure{
		"DeviceNumber":  of(win32.DeviceNumber{Type: win32.DeviceTypeDisk, Number: 3, Partition: 2}, win32.DecodeDeviceNumber),
		"SCSIAddress":   of(win32.SCSIAddress{Port: 1, Path: 2, Target: 3, LUN: 4}, win32.DecodeSCSIAddress),
		"PropertyQuery": of(win32.PropertyQuery{Property: win32.PropertyDeviceID, Type: win32.QueryStandard}, win32.DecodePropertyQuery),
		"DeviceDescriptor": of(win32.DeviceDescriptor{
			BusType: win32.BusSAS, Removable: true, Vendor: "vendor", Product: "product", Revision: "rev", Serial: "serial",
		}, win32.DecodeDeviceDescriptor),
		"LengthInfo": of(win32.LengthInfo{Length: 10 << 30}, win32.DecodeLengthInfo),
		"Geometry": of(win32.Geometry{
			Cylinders: 5, MediaType: 12, TracksPerCylinder: 255, SectorsPerTrack: 63, BytesPerSector: 512, DiskSize: 1 << 30,
		}, win32.DecodeGeometry),
		"DeviceIDs": of(win32.DeviceIDs{
			{CodeSet: win32.CodeSetBinary, Type: 3, Association: win32.AssociationDevice, Identifier: []byte{1, 2, 3, 4, 5, 6, 7, 8}},
			{CodeSet: win32.CodeSetASCII, Type: 1, Association: win32.AssociationPort, Identifier: []byte("AWS\x00")},
		}, win32.DecodeDeviceIDs),
		"CreateDiskGPT": of(win32.CreateDisk{Style: win32.StyleGPT, DiskID: disk, MaxPartitions: 128}, win32.DecodeCreateDisk),
		"CreateDiskMBR": of(win32.CreateDisk{Style: win32.StyleMBR, Signature: 0xcafe}, win32.DecodeCreateDisk),
		"DriveLayoutGPT": of(win32.DriveLayout{
			Style: win32.StyleGPT, DiskID: disk, UsableOffset: 17408, UsableLength: 0x3ffff7a00, MaxPartitions: 128,
			Partitions: []win32.Partition{{
				Style: win32.StyleGPT, Offset: 17 << 20, Length: 1 << 30, Number: 2, Rewrite: true,
				Type: win32.PartitionBasicData, ID: part, Attributes: win32.GPTNoDriveLetter, Name: "Basic",
			}},
		}, win32.DecodeDriveLayout),
		"DriveLayoutMBR": of(win32.DriveLayout{
			Style: win32.StyleMBR, Signature: 0xcafe,
			Partitions: []win32.Partition{
				{Style: win32.StyleMBR, Offset: 1 << 20, Length: 2 << 20, Number: 1, MBRType: 7, Boot: true, Hidden: 2048},
			},
		}, win32.DecodeDriveLayout),
		"GrowPartition":     of(win32.GrowPartition{Number: 2, Bytes: 1 << 20}, win32.DecodeGrowPartition),
		"VolumeDiskExtents": of(win32.VolumeDiskExtents{{Disk: 1, Offset: 17 << 20, Length: 1 << 30}}, win32.DecodeVolumeDiskExtents),
		"NTFSVolumeData": of(win32.NTFSVolumeData{
			Serial: 1, Sectors: 2, Clusters: 3, FreeClusters: 4, BytesPerSector: 512, BytesPerCluster: 4096,
		}, win32.DecodeNTFSVolumeData),
		"ReparseSymlink":    of(win32.Reparse{Tag: win32.ReparseTagSymlink, Substitute: "a", Print: "bc", Relative: true}, win32.DecodeReparse),
		"ReparseMountPoint": of(win32.Reparse{Tag: win32.ReparseTagMountPoint, Substitute: "a", Print: "bc"}, win32.DecodeReparse),
	}
}

func TestABI_isThatOfTheHeaders(t *testing.T) {
	h := ask(t)
	t.Run("structures", func(t *testing.T) { compareStructures(t, h) })
	t.Run("lists", func(t *testing.T) { compareLists(t, h) })
	t.Run("codes", func(t *testing.T) { compareCodes(t, h) })
}

func compareStructures(t *testing.T, h headers) {
	for name, s := range structures(t) {
		want, ok := h.bytes[name]
		if !ok {
			t.Errorf("the C program knows no %s", name)
			continue
		}
		if diff := cmp.Diff(hex.Dump(want), hex.Dump(s.value.Encode())); diff != "" {
			t.Errorf("%s encoded (-C +Go):\n%s", name, diff)
		}
		got, err := s.decode(want)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(any(s.value), got); diff != "" {
			t.Errorf("%s decoded (-Go +C):\n%s", name, diff)
		}
	}
}

// compareLists compares structures that are only read, only written, or part of a list.
func compareLists(t *testing.T, h headers) {
	portal := api.Portal{Address: "10.0.0.1", Port: 3261}
	login := win32.ISCSILoginOptions{Auth: api.OneWayCHAP, Username: "user", Secret: "secret"}
	options := make([]byte, login.Size())
	login.Put(options, 0x100000)
	encodedPortal, err := win32.EncodeISCSIPortal(portal)
	for name, got := range map[string][]byte{
		"ISCSIPortal": encodedPortal, "ISCSILoginOptions": options,
		"InterfaceDisk": win32.InterfaceDisk[:], "PartitionBasicData": win32.PartitionBasicData[:],
		"Directory": win32.EncodeDirectory([]win32.FileInfo{{Name: "link", Attributes: 0x410, ReparseTag: win32.ReparseTagSymlink}}),
	} {
		if diff := cmp.Diff(hex.Dump(h.bytes[name]), hex.Dump(got)); err != nil || diff != "" {
			t.Errorf("%s (-C +Go): %v\n%s", name, err, diff)
		}
	}
	read := func(name string, want any, got any, err error) {
		t.Helper()
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s (-want +got): %v\n%s", name, err, diff)
		}
	}
	portals, err := win32.DecodeISCSIPortals(h.bytes["ISCSIPortal"], 1)
	read("ISCSIPortal", []api.Portal{portal}, portals, err)
	infos, err := win32.DecodeISCSIPortalInfos(h.bytes["ISCSIPortalInfo"], 1)
	read("ISCSIPortalInfo", []api.Portal{portal}, infos, err)
	sessions, err := win32.DecodeISCSISessions(h.bytes["ISCSISessions"], h.codes["SESSIONS_BASE"], 1)
	read("ISCSISessions", []win32.Session{{
		ID: win32.SessionID{AdapterUnique: 1, AdapterSpecific: 2}, IQN: "iqn.name",
		Portals: []api.Portal{{Address: "10.0.0.1", Port: 3260}, {Address: "10.0.0.2", Port: 3261}},
	}}, sessions, err)
	devices, err := win32.DecodeISCSIDevices(h.bytes["ISCSIDevice"], 1)
	read("ISCSIDevice", []win32.DeviceNumber{{Type: win32.DeviceTypeDisk, Number: 5}}, devices, err)
	kept, err := win32.DecodeISCSIPersistentLogins(h.bytes["ISCSIPersistentLogin"], 1)
	read("ISCSIPersistentLogin", []win32.ISCSIPersistentLogin{{
		PersistentLogin: win32.PersistentLogin{IQN: "iqn.name", Portal: portal}, Initiator: "initiator", Port: 9,
	}}, kept, err)
}

// notCodes are constants of other kinds that the C program prints.
var notCodes = map[string]uint64{
	"IO_REPARSE_TAG_MOUNT_POINT": uint64(win32.ReparseTagMountPoint), "IO_REPARSE_TAG_SYMLINK": uint64(win32.ReparseTagSymlink),
	"MAXIMUM_REPARSE_DATA_BUFFER_SIZE": win32.ReparseSize,
}

func compareCodes(t *testing.T, h headers) {
	counts := map[string]int{}
	for name, value := range h.codes {
		var got string
		switch {
		case name == "SESSIONS_BASE":
			continue
		case strings.HasPrefix(name, "IOCTL_"), strings.HasPrefix(name, "FSCTL_"):
			got = win32.ControlCode(value).String()
			counts["control codes"]++
		case notCodes[name] != 0:
			if notCodes[name] != value {
				t.Errorf("%s is %#x", name, value)
			}
			continue
		default:
			got, _, _ = strings.Cut(win32.Errno(value).Error(), " ")
			counts["errors"]++
		}
		if got != name {
			t.Errorf("%#x is %s for the headers, %s here", value, name, got)
		}
	}
	if counts["control codes"] < 24 || counts["errors"] < 90 {
		t.Errorf("compared only %v", counts)
	}
	t.Logf("compared %v", counts)
}
