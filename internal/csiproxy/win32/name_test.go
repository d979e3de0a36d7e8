package win32

import (
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// NTFS takes any sequence of UTF-16 units for a name. What a directory lists must
// lead back to the entry.
func TestDirectory_namesComeBackAsTheyAre(t *testing.T) {
	if got := wideName([]byte{'a', 0, 0x00, 0xD8, 'b', 0}); got != "a\xed\xa0\x80b" {
		t.Errorf("%q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.OneOf(rapid.Uint16Range(1, 0xFFFF), rapid.Uint16Range(0xD7F0, 0xE010), rapid.Just(uint16('a')))
		var data []byte
		for _, u := range rapid.SliceOfN(unit, 1, 12).Draw(t, "units") {
			data = le.AppendUint16(data, u)
		}
		name := wideName(data)
		if back := widenName(name); string(back) != string(data) {
			t.Fatalf("% x came back as % x, by %q", data, back, name)
		}
		list, err := DecodeDirectory(EncodeDirectory([]FileInfo{{Name: name, Attributes: FileAttributeArchive}}))
		if name != "." && name != ".." && (err != nil || len(list) != 1 || list[0].Name != name) {
			t.Fatalf("%q is listed as %+v, %v", name, list, err)
		}
		if utf8.ValidString(name) && wide(data) != name {
			t.Fatalf("%q; want %q", name, wide(data))
		}
	})
}
