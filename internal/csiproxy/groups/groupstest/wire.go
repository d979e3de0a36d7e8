package groupstest

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
)

// The bytes of messages, by field numbers and types, without generated code.

// Message is the bytes of fields in the order given; encoders write them by number.
func Message(fields ...[]byte) []byte { return bytes.Join(fields, nil) }

// Text is a field of type string.
func Text(number protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), text)
}

// Number is a field of type bool, int32, int64, uint32 or of an enum.
func Number(number protowire.Number, value int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), uint64(value))
}

// Yes is a field of type bool that is true.
func Yes(number protowire.Number) []byte { return Number(number, 1) }

// Sub is a field of a message type.
func Sub(number protowire.Number, fields ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), Message(fields...))
}

// Entry is one entry of a map.
func Entry(number protowire.Number, key, value []byte) []byte { return Sub(number, key, value) }
