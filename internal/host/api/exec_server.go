package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
)

// exec runs a command in a container. The answer is 101 and frames in both directions; what
// is wrong before the command runs is its result.
func (s *Server) exec(w http.ResponseWriter, r *http.Request) error {
	var request ExecRequest
	if err := s.decodeUpgrade(w, r, &request, "an ExecRequest"); err != nil {
		return err
	}
	if len(request.Command) == 0 {
		return badRequest("command: is missing")
	}
	return s.upgraded(w, r, session{
		namespace: request.Namespace, pod: request.Pod, stdin: request.Stdin, terminal: request.Terminal, size: request.Size, window: execWindow,
		log: []any{"a command runs in a container", "container", request.Container, "terminal", request.Terminal},
		run: func(ctx context.Context, streams ExecStreams) (int, error) {
			return s.options.Host.Exec(ctx, request, streams)
		},
	})
}

// copy copies between a container and the client, in the frames of exec: the tar stream is
// the input or the output.
func (s *Server) copy(w http.ResponseWriter, r *http.Request) error {
	var request CopyRequest
	if err := s.decodeUpgrade(w, r, &request, "a CopyRequest"); err != nil {
		return err
	}
	switch {
	case request.Path == "" || strings.ContainsRune(request.Path, 0):
		return badRequest("path: %q is not the path of a file", request.Path)
	case request.Name == "" || request.Name == ".." || strings.ContainsAny(request.Name, "/\x00"):
		return badRequest("name: %q is not the name of a file", request.Name)
	}
	return s.upgraded(w, r, session{
		namespace: request.Namespace, pod: request.Pod, stdin: request.Upload, window: copyWindow,
		log: []any{"files of a container are copied", "container", request.Container, "upload", request.Upload},
		run: func(ctx context.Context, streams ExecStreams) (int, error) {
			return 0, s.options.Host.Copy(ctx, request, streams)
		},
	})
}

// decodeUpgrade reads the request of a call whose connection becomes one of frames.
func (s *Server) decodeUpgrade(w http.ResponseWriter, r *http.Request, into any, what string) error {
	data, err := body(w, r)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return badRequest("the body is not %s: %v", what, err)
	}
	if r.Header.Get("Upgrade") != execProtocol {
		return badRequest("the header Upgrade is not %s", execProtocol)
	}
	return nil
}

// session is what runs at the other end of the frames.
type session struct {
	namespace, pod  string
	stdin, terminal bool
	window          int // of the input
	size            Size
	log             []any // the message, and attributes
	run             func(context.Context, ExecStreams) (int, error)
}

// upgraded turns the connection into one of frames, and runs the session.
func (s *Server) upgraded(w http.ResponseWriter, r *http.Request, what session) error {
	if err := errors.Join(checkSegment("namespace", what.namespace), checkSegment("pod", what.pod)); err != nil {
		return badRequest("%v", err)
	}
	ctx, cancel := s.long(r)
	defer cancel()
	conn, buffer, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(timeout(handshakeLimit)); err != nil {
		return nil // the client has left
	}
	_, err = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + execProtocol + "\r\n\r\n"))
	if err != nil || conn.SetDeadline(noDeadline()) != nil {
		return nil // the client has left
	}
	from, err := peerFrom(r.Context())
	s.options.Logger.Info(fmt.Sprint(what.log[0]), append([]any{"uid", from.uid, "pid", from.pid, "pod", what.namespace + "/" + what.pod},
		what.log[1:]...)...)
	if err == nil {
		what.serve(ctx, buffer.Reader, &frameWriter{conn: conn}) //nolint:contextcheck // it is the request's
	}
	return nil
}

// serve runs the session until it ends, or the client is gone.
func (what session) serve(ctx context.Context, in *bufio.Reader, out *frameWriter) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A client that does not read must not keep the output for ever.
	defer context.AfterFunc(ctx, func() { _ = out.conn.SetWriteDeadline(timeout(handshakeLimit)) })()
	input, typed := io.Pipe()
	defer func() { _ = input.Close() }()
	channels := execChannels{input: make(chan []byte, what.window), signals: make(chan syscall.Signal, 16), sizes: make(chan Size, 16)}
	if what.terminal && what.size != (Size{}) {
		channels.sizes <- what.size
	}
	streams := ExecStreams{Stdout: out.on(channelStdout), Stderr: out.on(channelStderr), Signals: channels.signals, Sizes: channels.sizes}
	if what.stdin {
		streams.Stdin = input
	}
	go channels.feed(ctx, typed, out)
	go func() {
		defer cancel() // the client is gone, or sends what is not of the protocol
		channels.demultiplex(in)
	}()
	code, err := what.run(ctx, streams)
	result := execResult{Code: code}
	if err != nil {
		status := statusOf(err)
		result.Status = &status
	}
	_ = out.sendJSON(channelResult, result) // the client may be gone
}

// execChannels are what a client sends.
type execChannels struct {
	// input has as many parts as the client may send before one is taken, so that signals
	// and the end of the connection are seen behind them.
	input   chan []byte
	signals chan syscall.Signal
	sizes   chan Size
}

// feed passes the input on, part for part. An empty part is its end.
func (c execChannels) feed(ctx context.Context, typed *io.PipeWriter, out *frameWriter) {
	defer func() { _ = typed.Close() }()
	for {
		select {
		case part := <-c.input:
			if len(part) == 0 {
				return
			}
			if _, err := typed.Write(part); err != nil {
				return // the command has ended
			}
			if err := out.send(channelStdin, nil); err != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// demultiplex reads the client's frames until the connection ends. It never waits for the
// command: a signal or a size is dropped if nothing takes it.
func (c execChannels) demultiplex(in *bufio.Reader) {
	for {
		channel, content, err := readFrame(in)
		if err != nil || !c.take(channel, content) {
			return
		}
	}
}

// take reports whether a frame is of the protocol.
func (c execChannels) take(channel byte, content []byte) bool {
	switch channel {
	case channelStdin:
		select {
		case c.input <- content:
		default:
			return false // it did not wait for the parts before
		}
	case channelSize:
		var size Size
		if json.Unmarshal(content, &size) != nil {
			return false
		}
		select {
		case c.sizes <- size:
		default:
		}
	case channelSignal:
		number, err := strconv.Atoi(string(content))
		if err != nil || number <= 0 || number > maximumSignal {
			return false
		}
		select {
		case c.signals <- syscall.Signal(number):
		default:
		}
	default:
		return false
	}
	return true
}

// maximumSignal is the highest number of a signal (signal(7)).
const maximumSignal = 64
