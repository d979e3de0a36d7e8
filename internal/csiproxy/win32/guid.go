package win32

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
)

// GUID is a GUID as it lies in memory: its first three fields little-endian.
type GUID [16]byte

// Types of GPT partitions.
var (
	PartitionBasicData = GUID{0xa2, 0xa0, 0xd0, 0xeb, 0xe5, 0xb9, 0x33, 0x44, 0x87, 0xc0, 0x68, 0xb6, 0xb7, 0x26, 0x99,
		0xc7} // {ebd0a0a2-b9e5-4433-87c0-68b6b72699c7}
	PartitionReserved = GUID{0x16, 0xe3, 0xc9, 0xe3, 0x5c, 0x0b, 0xb8, 0x4d, 0x81, 0x7d, 0xf9, 0x2d, 0xf0, 0x02, 0x15,
		0xae} // {e3c9e316-0b5c-4db8-817d-f92df00215ae}, MSR
	PartitionSystem = GUID{0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11, 0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9,
		0x3b} // {c12a7328-f81f-11d2-ba4b-00a0c93ec93b}, EFI
	PartitionRecovery = GUID{0xa4, 0xbb, 0x94, 0xde, 0xd1, 0x06, 0x40, 0x4d, 0xa1, 0x6a, 0xbf, 0xd5, 0x01, 0x79, 0xd6,
		0xac} // {de94bba4-06d1-4d40-a16a-bfd50179d6ac}
)

// InterfaceDisk is GUID_DEVINTERFACE_DISK, {53f56307-b6bf-11d0-94f2-00a0c91efb8b}.
var InterfaceDisk = GUID{0x07, 0x63, 0xf5, 0x53, 0xbf, 0xb6, 0xd0, 0x11, 0x94, 0xf2, 0x00, 0xa0, 0xc9, 0x1e, 0xfb, 0x8b}

// guidOrder is the byte in memory of each pair of digits.
var guidOrder = [16]int{3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15}

// NewGUID is a random GUID (version 4 of RFC 9562).
func NewGUID() GUID {
	var g GUID
	_, _ = rand.Read(g[:]) // never fails
	g[7] = g[7]&0x0f | 0x40
	g[8] = g[8]&0x3f | 0x80
	return g
}

// String is the usual text, lower-case and in braces.
func (g GUID) String() string {
	var digits [16]byte
	for i, at := range guidOrder {
		digits[i] = g[at]
	}
	text := hex.EncodeToString(digits[:])
	return "{" + text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:] + "}"
}

// ParseGUID reads a GUID with or without its braces, in any case.
func ParseGUID(text string) (GUID, error) {
	var g GUID
	inner := text
	if strings.HasPrefix(text, "{") && strings.HasSuffix(text, "}") {
		inner = text[1 : len(text)-1]
	}
	if len(inner) != 36 || inner[8] != '-' || inner[13] != '-' || inner[18] != '-' || inner[23] != '-' {
		return g, fmt.Errorf("%.60q is not a GUID", text)
	}
	digits, err := hex.DecodeString(inner[:8] + inner[9:13] + inner[14:18] + inner[19:23] + inner[24:])
	if err != nil {
		return g, fmt.Errorf("%.60q is not a GUID", text)
	}
	for i, at := range guidOrder {
		g[at] = digits[i]
	}
	return g, nil
}

func guidAt(data []byte) GUID { return GUID(data[:16]) }
