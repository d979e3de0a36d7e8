package win32

import (
	"bytes"
	"strings"
)

const (
	smbiosHeader    = 8 // of RawSMBIOSData
	smbiosSystem    = 1 // System Information
	smbiosEnd       = 127
	smbiosStructure = 4 // header of each structure
	smbiosSerialAt  = 7 // in System Information: the number of the string with the serial number
)

// SystemSerial finds the machine's serial number in the table of SMBIOS: that of
// the structure System Information (DSP0134, 7.2), without the blanks around it.
// "" if the structure has none, or is missing.
func SystemSerial(raw []byte) (string, error) {
	const name = "SMBIOS table"
	if err := atLeast(name, raw, smbiosHeader); err != nil {
		return "", err
	}
	size, table := le.Uint32(raw[4:]), raw[smbiosHeader:]
	if uint64(size) > uint64(len(table)) {
		return "", malformed(name, "%d bytes, not %d", len(table), size)
	}
	for table = table[:size]; len(table) >= smbiosStructure; {
		kind, length := table[0], int(table[1])
		if length < smbiosStructure || length > len(table) {
			return "", malformed(name, "a structure of %d bytes in %d", length, len(table))
		}
		if kind == smbiosEnd {
			return "", nil
		}
		// Strings end with an empty one; without any there are two NULs as well.
		end := bytes.Index(table[length:], []byte{0, 0})
		if end < 0 {
			return "", malformed(name, "the strings of a structure have no end")
		}
		if kind == smbiosSystem {
			return smbiosString(table[:length], table[length:length+end]), nil
		}
		table = table[length+end+2:]
	}
	return "", nil
}

// smbiosString is the string that the byte at smbiosSerialAt numbers, from 1.
func smbiosString(structure, stringTable []byte) string {
	if len(structure) <= smbiosSerialAt || structure[smbiosSerialAt] == 0 {
		return ""
	}
	list := bytes.Split(stringTable, []byte{0})
	if number := int(structure[smbiosSerialAt]); number <= len(list) {
		return strings.TrimSpace(string(list[number-1]))
	}
	return ""
}

// EncodeSMBIOS returns a table of one structure, System Information, with that serial
// number, as GetSystemFirmwareTable returns it.
func EncodeSMBIOS(serial string) []byte {
	system := []byte{smbiosSystem, 27, 1, 0, 1, 2, 3, 4}
	system = append(system, make([]byte, 27-len(system))...)
	table := append(system, "Holdfast\x00Simulated\x001.0\x00"...)
	if serial == "" {
		table[smbiosSerialAt] = 0
	} else {
		table = append(append(table, serial...), 0)
	}
	table = append(table, 0, smbiosEnd, smbiosStructure, 2, 0, 0, 0)
	raw := []byte{0, 3, 4, 0}
	return append(le.AppendUint32(raw, uint32(len(table))), table...)
}
