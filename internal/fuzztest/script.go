package fuzztest

import "encoding/binary"

// Call is one call of a Script.
type Call struct {
	Method  int
	Request []byte
}

// mostCalls bounds a Script.
const mostCalls = 12

// Script reads calls from a fuzz target's input: a byte for the method, two for the
// request's length, the request, and so on. Every input is a script; the last request may
// be shorter than its length.
func Script(data []byte, methods int) (calls []Call) {
	for len(data) >= 3 && len(calls) < mostCalls {
		length := min(int(binary.BigEndian.Uint16(data[1:])), len(data)-3)
		calls = append(calls, Call{int(data[0]) % methods, data[3 : 3+length]})
		data = data[3+length:]
	}
	return calls
}

// Append adds a call to a script, for seeds. Requests have at most 65,535 bytes.
func Append(script []byte, method int, request []byte) []byte {
	script = append(script, byte(method))
	script = binary.BigEndian.AppendUint16(script, uint16(len(request))) //nolint:gosec // see above
	return append(script, request...)
}
