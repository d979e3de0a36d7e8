package win32

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// ErrMalformed is the decoders' error for bytes that are not the expected structure: too
// short, or with a count, offset or length that points outside.
var ErrMalformed = errors.New("malformed structure")

// le is the byte order of all structures of Windows.
var le = binary.LittleEndian

func malformed(structure, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrMalformed, structure, fmt.Sprintf(format, args...))
}

// atLeast rejects fewer bytes than the structure's fixed part has.
func atLeast(structure string, data []byte, size int) error {
	if len(data) < size {
		return malformed(structure, "%d bytes, not %d", len(data), size)
	}
	return nil
}

// wide reads UTF-16; half of a surrogate pair becomes U+FFFD.
func wide(data []byte) string {
	units := make([]uint16, len(data)/2)
	for i := range units {
		units[i] = le.Uint16(data[2*i:])
	}
	return string(utf16.Decode(units))
}

// wideName reads the UTF-16 of a file's name, which need not be well-formed: half
// of a surrogate pair becomes three bytes (WTF-8, as in package
// syscall), so that the name can be passed to Windows unchanged.
func wideName(data []byte) string {
	var name []byte
	for i := 0; i+1 < len(data); i += 2 {
		r := rune(le.Uint16(data[i:]))
		if utf16.IsSurrogate(r) && i+3 < len(data) {
			if pair := utf16.DecodeRune(r, rune(le.Uint16(data[i+2:]))); pair != unicode.ReplacementChar {
				r, i = pair, i+2
			}
		}
		if utf16.IsSurrogate(r) {
			name = append(name, 0xE0|byte(r>>12), 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
			continue
		}
		name = utf8.AppendRune(name, r)
	}
	return string(name)
}

// widenName is the opposite of wideName.
func widenName(name string) []byte {
	var data []byte
	for len(name) > 0 {
		r, size := utf8.DecodeRuneInString(name)
		if r == utf8.RuneError && size == 1 && len(name) >= 3 && name[0] == 0xED && name[1]&0xE0 == 0xA0 &&
			name[2]&0xC0 == 0x80 {
			data = le.AppendUint16(data, 0xD000|uint16(name[1]&0x3F)<<6|uint16(name[2]&0x3F))
			name = name[3:]
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			data = le.AppendUint16(data, unit)
		}
		name = name[size:]
	}
	return data
}

// wideZ reads UTF-16 up to its NUL, or to the end of data.
func wideZ(data []byte) string {
	for i := 0; i+1 < len(data); i += 2 {
		if data[i] == 0 && data[i+1] == 0 {
			return wide(data[:i])
		}
	}
	return wide(data)
}

// widen is text in UTF-16, without a NUL.
func widen(text string) []byte {
	var data []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		data = le.AppendUint16(data, unit)
	}
	return data
}

// putWide writes text into a field of fixed size, truncates it to the field, and
// fills the rest with NULs.
func putWide(field []byte, text string) {
	clear(field[copy(field, widen(text)):])
}

// untilNUL is data up to its first NUL, or all of it.
func untilNUL(data []byte) []byte {
	for i, b := range data {
		if b == 0 {
			return data[:i]
		}
	}
	return data
}

// DecodeMultiString splits a list of NUL-terminated UTF-16 strings that ends with
// an empty one, or with the data.
func DecodeMultiString(units []uint16) []string {
	var list []string
	for start, i := 0, 0; i <= len(units); i++ {
		if i < len(units) && units[i] != 0 {
			continue
		}
		if i == start {
			break
		}
		list = append(list, string(utf16.Decode(units[start:i])))
		start = i + 1
	}
	return list
}

// EncodeMultiString is the opposite of DecodeMultiString; no string may be empty.
func EncodeMultiString(list []string) []uint16 {
	var units []uint16
	for _, text := range list {
		units = append(append(units, utf16.Encode([]rune(text))...), 0)
	}
	return append(units, 0)
}
