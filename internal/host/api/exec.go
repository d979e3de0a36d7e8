package api

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

// ExecRequest names a command to run in a container that runs.
type ExecRequest struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// Container may be empty if the pod has one.
	Container string   `json:"container,omitempty"`
	Command   []string `json:"command"`
	// Stdin: the client sends the command's input. Otherwise it has none.
	Stdin bool `json:"stdin,omitempty"`
	// Terminal: the command gets a terminal, with this size at first.
	Terminal bool `json:"terminal,omitempty"`
	Size     Size `json:"size,omitzero"`
}

// CopyRequest names what is copied between a container that runs and a tar stream.
type CopyRequest struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// Container may be empty if the pod has one.
	Container string `json:"container,omitempty"`
	// Path is in the container; a relative one begins at its working directory.
	Path string `json:"path"`
	// Upload: the client sends the stream, which is unpacked at Path, or below it if it is
	// a directory. Otherwise the client gets the stream of what is at Path.
	Upload bool `json:"upload,omitempty"`
	// Name is the first part of all names in the stream; "." if they have none in common.
	Name string `json:"name"`
	// NoPreserve: what is unpacked gets the default permissions and times.
	NoPreserve bool `json:"noPreserve,omitempty"`
}

// Size is a terminal's.
type Size = workload.Size

// ExecStreams are the client's side of a command. A channel that is nil sends nothing.
type ExecStreams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Signals        <-chan syscall.Signal
	Sizes          <-chan Size
}

// execProtocol is what the connection is upgraded to: frames in both directions, each of
// a channel (one byte), a length (four, big endian), and the content.
const execProtocol = "holdfast-exec/1"

// The channels of frames.
const (
	channelStdin  = 0 // an empty frame is the end of the input; from the host, that it took a part
	channelStdout = 1
	channelStderr = 2
	channelResult = 3 // an execResult; the last frame of the host
	channelSize   = 4 // a Size
	channelSignal = 5 // the number in decimals
)

// execResult is how a command ended, or why it did not run.
type execResult struct {
	Code   int            `json:"code"`
	Status *metav1.Status `json:"status,omitempty"`
}

// The parts of the input that a client may send before the host takes the first of them. A
// stream of a copy flows, and what is typed for a command waits.
const (
	execWindow = 1
	copyWindow = 32
)

// maximumFrame bounds the content of a frame.
const maximumFrame = 64 << 10

// frameWriter sends frames. It is safe for concurrent use.
type frameWriter struct {
	mu   sync.Mutex
	conn net.Conn
}

// send writes content as frames. It waits for a peer that does not read.
func (f *frameWriter) send(channel byte, content []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for first := true; first || len(content) > 0; first = false {
		part := content[:min(len(content), maximumFrame)]
		content = content[len(part):]
		header := binary.BigEndian.AppendUint32([]byte{channel}, uint32(len(part))) //nolint:gosec // at most maximumFrame
		if _, err := f.conn.Write(append(header, part...)); err != nil {
			return err
		}
	}
	return nil
}

func (f *frameWriter) sendJSON(channel byte, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return f.send(channel, data)
}

// on is a writer of one channel. An empty Write sends nothing: that would be an end.
func (f *frameWriter) on(channel byte) io.Writer {
	return writing(func(data []byte) (int, error) {
		if len(data) == 0 {
			return 0, nil
		}
		return len(data), f.send(channel, data)
	})
}

type writing func([]byte) (int, error)

func (w writing) Write(data []byte) (int, error) { return w(data) }

// readFrame reads the next frame.
func readFrame(reader *bufio.Reader) (channel byte, content []byte, err error) {
	header := make([]byte, 5)
	if _, err := io.ReadFull(reader, header); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(header[1:])
	if length > maximumFrame {
		return 0, nil, fmt.Errorf("a frame has %d bytes; %d at most", length, maximumFrame)
	}
	content = make([]byte, length)
	_, err = io.ReadFull(reader, content)
	return header[0], content, err
}

// errNoResult is the end of the connection before the command's.
var errNoResult = errors.New("the connection ended before the command: whether it still runs is not known; the host ends it within seconds")

// handshakeLimit bounds the wait for the other side before the first frame.
const handshakeLimit = 10 * time.Second
