package win32

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestErrno_showsNameAndNumber(t *testing.T) {
	for errno, want := range map[Errno]string{
		ErrorDirNotEmpty:               "ERROR_DIR_NOT_EMPTY (145)",
		ErrorUnrecognizedVolume:        "ERROR_UNRECOGNIZED_VOLUME (1005)",
		ErrorSessionCredentialConflict: "ERROR_SESSION_CREDENTIAL_CONFLICT (1219)",
		ErrorNotAReparsePoint:          "ERROR_NOT_A_REPARSE_POINT (4390)",
		ISDSCAuthenticationFailure:     "ISDSC_AUTHENTICATION_FAILURE (0XEFFF0009)",
		ErrorWBEMNotFound:              "WBEM_E_NOT_FOUND (0X80041002)",
		54321:                          "Windows error 54321",
		0x80101234:                     "Windows error 0X80101234",
	} {
		if got := errno.Error(); got != want {
			t.Errorf("%d: %q, not %q", uint32(errno), got, want)
		}
	}
}

func TestErrno_isWhatPackageFsKnows(t *testing.T) {
	known := []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission}
	for errno, kind := range map[Errno]int{
		ErrorFileNotFound: 0, ErrorPathNotFound: 0,
		ErrorAlreadyExists: 1, ErrorFileExists: 1, ErrorDirNotEmpty: 1,
		ErrorAccessDenied: 2, ErrorPrivilegeNotHeld: 2, ErrorSharingViolation: -1,
	} {
		for i, target := range known {
			if got := errors.Is(errno, target); got != (i == kind) {
				t.Errorf("errors.Is(%v, %v) = %t", errno, target, got)
			}
		}
	}
}

func TestFromHRESULT_unwrapsOnlyWindowsNumbers(t *testing.T) {
	for result, want := range map[uint32]Errno{
		0x80070005: ErrorAccessDenied, 0x800704C3: ErrorSessionCredentialConflict,
		0x80041002: ErrorWBEMNotFound, 0: 0, 1219: 1219,
	} {
		if got := FromHRESULT(result); got != want {
			t.Errorf("%#x: %v", result, got)
		}
	}
}

func TestGUID_isParsedAndPrinted(t *testing.T) {
	for text, want := range map[string]GUID{
		"{ebd0a0a2-b9e5-4433-87c0-68b6b72699c7}": PartitionBasicData,
		"{e3c9e316-0b5c-4db8-817d-f92df00215ae}": PartitionReserved,
		"{c12a7328-f81f-11d2-ba4b-00a0c93ec93b}": PartitionSystem,
		"{de94bba4-06d1-4d40-a16a-bfd50179d6ac}": PartitionRecovery,
		"{53f56307-b6bf-11d0-94f2-00a0c91efb8b}": InterfaceDisk,
		"{00000000-0000-0000-0000-000000000000}": {},
	} {
		got, err := ParseGUID(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		if bare, err := ParseGUID(text[1:37]); err != nil || bare != want {
			t.Errorf("%s: %v, %v", text[1:37], bare, err)
		}
	}
	for _, text := range []string{"", "{}", "{", "{ebd0a0a2-b9e5-4433-87c0-68b6b72699c7", "ebd0a0a2_b9e5-4433-87c0-68b6b72699c7", "{ebd0a0a2-b9e5-4433-87c0-68b6b72699cg}"} {
		if _, err := ParseGUID(text); err == nil {
			t.Errorf("%q is not a GUID", text)
		}
	}
	if a, b := NewGUID(), NewGUID(); a == b || a.String()[15] != '4' {
		t.Errorf("new GUIDs %v, %v", a, b)
	}
}

func TestMultiString_endsAtTheEmptyOne(t *testing.T) {
	for _, list := range [][]string{nil, {`C:\`}, {`C:\a\`, "ü", "😀"}} {
		if got := DecodeMultiString(EncodeMultiString(list)); !cmp.Equal(got, list) {
			t.Errorf("%q: %q", list, got)
		}
	}
	if got := DecodeMultiString([]uint16{'a', 0, 'b'}); !cmp.Equal(got, []string{"a", "b"}) {
		t.Errorf("without an end: %q", got)
	}
	if got := DecodeMultiString([]uint16{'a', 0, 0, 'b', 0}); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("past the end: %q", got)
	}
}

func TestReparse_saysWhereItLeads(t *testing.T) {
	for _, c := range []struct {
		reparse    Reparse
		substitute string
		target     string
		volume     bool
	}{
		{NewSymlink(`C:\a b`), `\??\C:\a b`, `C:\a b`, false},
		{NewSymlink(`\\srv\share\`), `\??\UNC\srv\share\`, `\\srv\share\`, false},
		{NewSymlink(`\\?\UNC\srv\share\`), `\??\UNC\srv\share\`, `\\srv\share\`, false},
		{NewMountPoint(`\\?\Volume{X}\`), `\??\Volume{X}\`, `\\?\Volume{X}\`, true},
		{NewMountPoint(`D:\x`), `\??\D:\x`, `D:\x`, false},
		{Reparse{Tag: ReparseTagSymlink, Substitute: `..\x`, Relative: true}, `..\x`, `..\x`, false},
		{Reparse{Tag: ReparseTagSymlink, Substitute: `\??\Volume{X}\y`}, `\??\Volume{X}\y`, `\\?\Volume{X}\y`, false},
		{Reparse{Tag: ReparseTagMountPoint, Substitute: `\??\C:\evil`, Print: `\\?\Volume{X}\`}, `\??\C:\evil`, `C:\evil`, false},
	} {
		if c.reparse.Substitute != c.substitute || c.reparse.Target() != c.target || c.reparse.IsVolume() != c.volume {
			t.Errorf("%+v leads to %q, volume %t; want %q at %q, %t",
				c.reparse, c.reparse.Target(), c.reparse.IsVolume(), c.substitute, c.target, c.volume)
		}
	}
}

// Every tag of Microsoft has the bits of the mount point's; only the tag
// itself is a mounted folder.
func TestReparse_isAVolumeByItsWholeTag(t *testing.T) {
	for _, tag := range []uint32{ReparseTagSymlink, ReparseTagAFUnix, 0xA0000019} {
		if (Reparse{Tag: tag, Substitute: `\??\Volume{X}\`}).IsVolume() {
			t.Errorf("tag %#x is taken for a mounted folder", tag)
		}
	}
}

func TestSystemSerial_isThatOfTheSystem(t *testing.T) {
	table := func(structures ...string) []byte {
		all := ""
		for _, s := range structures {
			all += s
		}
		return append(le.AppendUint32([]byte{0, 3, 4, 0}, uint32(len(all))), all...)
	}
	bios := "\x00\x05\x00\x00\x01" + "Vendor\x00\x00"
	board := "\x02\x08\x00\x00\x01\x02\x03\x04" + "a\x00b\x00c\x00board-serial\x00\x00"
	system := "\x01\x08\x01\x00\x01\x02\x03\x04" + "maker\x00model\x00v\x00 ec2-1234 \x00\x00"
	for _, c := range []struct {
		name string
		raw  []byte
		want string
	}{
		{"between others", table(bios, system, board), "ec2-1234"},
		{"not of the board", table(bios, board), ""},
		{"without strings", table("\x01\x08\x01\x00\x00\x00\x00\x00" + "\x00\x00"), ""},
		{"a number without a string", table("\x01\x08\x01\x00\x00\x00\x00\x09" + "x\x00\x00"), ""},
		{"too old to have one", table("\x01\x04\x01\x00" + "\x00\x00"), ""},
		{"after the end", table("\x7f\x04\x00\x00\x00\x00", system), ""},
		{"empty", table(), ""},
		{"encoded", EncodeSMBIOS("i-0abc"), "i-0abc"},
		{"encoded without", EncodeSMBIOS(""), ""},
	} {
		if got, err := SystemSerial(c.raw); err != nil || got != c.want {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
	for _, raw := range []string{"", "\x00\x03\x04\x00\x05\x00\x00\x00", string(table("\x01\x03\x01\x00")), string(table("\x01\xff\x01\x00")), string(table("\x01\x04\x01\x00abc"))} {
		if _, err := SystemSerial([]byte(raw)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%x: %v", raw, err)
		}
	}
}

func TestDirectory_isReadWithTags(t *testing.T) {
	list := []FileInfo{
		{Name: "file", Attributes: FileAttributeArchive},
		{Name: "link", Attributes: FileAttributeDirectory | FileAttributeReparsePoint, ReparseTag: ReparseTagSymlink},
		{Name: "Ünï", Attributes: FileAttributeDirectory},
	}
	dots := append([]FileInfo{{Name: ".", Attributes: FileAttributeDirectory}, {Name: "..", Attributes: FileAttributeDirectory}}, list...)
	got, err := DecodeDirectory(EncodeDirectory(dots))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(list, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	data := EncodeDirectory(list)
	le.PutUint32(data, 2)
	if _, err := DecodeDirectory(data); !errors.Is(err, ErrMalformed) {
		t.Errorf("entries that overlap: %v", err)
	}
}
