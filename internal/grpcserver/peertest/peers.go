package peertest

import (
	"bytes"
	"encoding/binary"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// peer does its worst over a connection, until it is closed. It returns when it waits.
type peer func(conn net.Conn, path string)

// silent is the name of a peer that does not even begin.
const silent = "says nothing"

// peers are the hostile ones, by name.
func peers() map[string]peer {
	return map[string]peer{
		silent:                    func(net.Conn, string) {},
		"stops after the preface": func(c net.Conn, _ string) { greet(c) },
		"sends HTTP/1": func(c net.Conn, path string) {
			write(c, []byte("POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{"))
		},
		"sends HTTP/1 headers without end": func(c net.Conn, path string) {
			write(c, []byte("GET "+path+" HTTP/1.1\r\n"))
			for range 100 {
				write(c, append([]byte("X: "), bytes.Repeat([]byte("y"), 8<<10)...))
			}
		},
		"sends noise":             func(c net.Conn, _ string) { write(c, bytes.Repeat([]byte{0xff, 0, 7}, 10_000)) },
		"closes its half":         closeHalf,
		"opens 10,000 streams":    openStreams,
		"sends huge headers":      hugeHeaders,
		"names 1 GiB":             func(c net.Conn, path string) { body(c, path, 1<<30, 1<<20) },
		"sends half of a message": func(c net.Conn, path string) { body(c, path, 3<<20, 1<<20) },
		"trickles":                trickle,
		"never reads":             neverReads,
		"resets what it opens":    resets,
		"floods with settings":    settings,
	}
}

// write sends data to a server that may have closed the connection.
func write(c net.Conn, data []byte) { _, _ = c.Write(data) }

// greet sends HTTP/2's preface and settings with large windows.
func greet(c net.Conn) *http2.Framer {
	write(c, []byte(http2.ClientPreface))
	framer := http2.NewFramer(c, nil)
	_ = framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
	return framer
}

func headers(path string, more ...string) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	fields := append([]string{":method", "POST", ":scheme", "http", ":path", path, ":authority", "x",
		"content-type", "application/grpc", "te", "trailers"}, more...)
	for i := 0; i < len(fields); i += 2 {
		_ = encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return block.Bytes()
}

func open(framer *http2.Framer, stream uint32, block []byte, end bool) bool {
	return framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndStream: end, EndHeaders: true}) == nil
}

func closeHalf(c net.Conn, path string) {
	framer := greet(c)
	open(framer, 1, headers(path), false)
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

func openStreams(c net.Conn, path string) {
	framer, block := greet(c), headers(path)
	for stream := uint32(1); stream < 20_000; stream += 2 {
		if !open(framer, stream, block, false) {
			return
		}
	}
}

func resets(c net.Conn, path string) {
	framer, block := greet(c), headers(path)
	for stream := uint32(1); stream < 20_000; stream += 2 {
		if !open(framer, stream, block, true) || framer.WriteRSTStream(stream, http2.ErrCodeCancel) != nil {
			return
		}
	}
}

func hugeHeaders(c net.Conn, path string) {
	framer := greet(c)
	block := headers(path, "x", string(bytes.Repeat([]byte("y"), 1<<20)))
	if framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:16000]}) != nil {
		return
	}
	for rest := block[16000:]; len(rest) > 0; {
		part := rest[:min(len(rest), 16000)]
		rest = rest[len(part):]
		if framer.WriteContinuation(1, len(rest) == 0, part) != nil {
			return
		}
	}
}

// body begins a message of a length, and sends a part of it on each of some streams.
func body(c net.Conn, path string, length uint32, part int) {
	framer, block := greet(c), headers(path)
	prefix := binary.BigEndian.AppendUint32([]byte{0}, length)
	for stream := uint32(1); stream < 40; stream += 2 {
		if !open(framer, stream, block, false) || framer.WriteData(stream, false, prefix) != nil {
			return
		}
		for sent := 0; sent < part; sent += 16 << 10 {
			if framer.WriteData(stream, false, make([]byte, 16<<10)) != nil {
				return
			}
		}
	}
}

func trickle(c net.Conn, path string) {
	framer := greet(c)
	open(framer, 1, headers(path), false)
	for i := range 5 {
		if framer.WriteData(1, false, []byte{byte(i)}) != nil {
			return
		}
	}
}

// neverReads makes calls, and reads no answer.
func neverReads(c net.Conn, path string) {
	framer, block := greet(c), headers(path)
	for stream := uint32(1); stream < 4000; stream += 2 {
		if !open(framer, stream, block, false) || framer.WriteData(stream, true, []byte{0, 0, 0, 0, 0}) != nil {
			return
		}
	}
}

func settings(c net.Conn, _ string) {
	framer := greet(c)
	for range 10_000 {
		if framer.WriteSettings() != nil || framer.WritePing(false, [8]byte{}) != nil {
			return
		}
	}
}
