package pages

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
)

// mended is a file whose meta pages have the right sums for any content.
func mended(data []byte) []byte {
	data = bytes.Clone(data)
	for _, at := range []int{headerSize, 1024 + headerSize} {
		if at+metaSize > len(data) {
			break
		}
		body := data[at:]
		binary.NativeEndian.PutUint32(body, magic)
		binary.NativeEndian.PutUint32(body[4:], version)
		binary.NativeEndian.PutUint32(body[8:], 1024)
		sum := fnv.New64a()
		_, _ = sum.Write(body[:checksummed])
		binary.NativeEndian.PutUint64(body[checksummed:], sum.Sum64())
	}
	return data
}
