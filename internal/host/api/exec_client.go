package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

func noDeadline() time.Time { return time.Time{} }

// Exec runs a command in a container that runs, and returns its exit code. An error means
// that the command did not run, or that its end is not known. When the context ends, the
// host ends the command.
func (c *Client) Exec(ctx context.Context, what ExecRequest, streams ExecStreams) (int, error) {
	if !what.Stdin {
		streams.Stdin = nil
	}
	return c.framed(ctx, "exec", what, streams, execWindow)
}

// Copy copies between a container that runs and the streams: Stdin is the tar stream of an
// upload, Stdout gets the other one, and Stderr a line for each thing that is left out. A
// Stdin that ends before the stream's end mark is an error, and the host removes what is
// unfinished, as it does when the context ends.
func (c *Client) Copy(ctx context.Context, what CopyRequest, streams ExecStreams) error {
	_, err := c.framed(ctx, "copy", what, streams, copyWindow)
	return err
}

// framed calls what is served in frames. The window is how many parts of the input may be
// on their way.
func (c *Client) framed(ctx context.Context, name string, what any, streams ExecStreams, window int) (int, error) {
	data, err := json.Marshal(what)
	if err != nil {
		return 0, err
	}
	conn, reader, err := c.upgrade(ctx, ownPrefix+name, data)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	out := &frameWriter{conn: conn}
	ended, taken := make(chan struct{}), make(chan struct{}, window)
	defer close(ended)
	if streams.Stdin != nil {
		go out.input(streams.Stdin, taken, ended)
	}
	go out.forward(streams, ended)
	code, err := receive(reader, streams, taken)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return code, err
}

// upgrade sends the request over a connection of its own.
func (c *Client) upgrade(ctx context.Context, path string, body []byte) (net.Conn, *bufio.Reader, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", c.socket)
	if err != nil {
		return nil, nil, c.explain(ctx, err)
	}
	fail := func(err error) (net.Conn, *bufio.Reader, error) {
		return nil, nil, errors.Join(err, conn.Close())
	}
	header := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: host\r\nConnection: Upgrade\r\nUpgrade: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
		path, execProtocol, len(body))
	if err := conn.SetDeadline(timeout(handshakeLimit)); err != nil {
		return fail(err)
	}
	if _, err := conn.Write(append([]byte(header), body...)); err != nil {
		return fail(c.explain(ctx, err))
	}
	reader := bufio.NewReader(conn)
	answer, err := http.ReadResponse(reader, nil)
	if err != nil {
		return fail(c.explain(ctx, err))
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		defer func() { _ = answer.Body.Close() }()
		return fail(readError(answer))
	}
	return conn, reader, conn.SetDeadline(noDeadline())
}

// input sends the input, as many parts before the host takes one as taken has room for.
func (f *frameWriter) input(from io.Reader, taken, ended <-chan struct{}) {
	part := make([]byte, maximumFrame/2)
	for free := cap(taken); ; {
		n, err := from.Read(part)
		if n > 0 {
			if f.send(channelStdin, part[:n]) != nil {
				return
			}
			if free--; free == 0 {
				select {
				case <-taken:
					free++
				case <-ended:
					return
				}
			}
		}
		if err != nil {
			_ = f.send(channelStdin, nil) // the command may have ended
			return
		}
	}
}

// forward sends signals and sizes until the command has ended.
func (f *frameWriter) forward(streams ExecStreams, ended <-chan struct{}) {
	for {
		var err error
		select {
		case sent := <-streams.Signals:
			err = f.send(channelSignal, []byte(strconv.Itoa(int(sent))))
		case size := <-streams.Sizes:
			err = f.sendJSON(channelSize, size)
		case <-ended:
			return
		}
		if err != nil {
			return // the reader sees the end of the connection
		}
	}
}

// receive writes the output until the result comes. A writer that fails ends the command.
func receive(reader *bufio.Reader, streams ExecStreams, taken chan<- struct{}) (int, error) {
	for {
		channel, content, err := readFrame(reader)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errNoResult
		}
		if err != nil {
			return 0, err
		}
		switch channel {
		case channelStdin:
			select {
			case taken <- struct{}{}:
			default:
			}
		case channelStdout:
			_, err = streams.Stdout.Write(content)
		case channelStderr:
			_, err = streams.Stderr.Write(content)
		case channelResult:
			var result execResult
			if err := json.Unmarshal(content, &result); err != nil {
				return 0, fmt.Errorf("the host's answer: %w", err)
			}
			if result.Status != nil {
				return 0, &statusError{*result.Status}
			}
			return result.Code, nil
		}
		if err != nil {
			return 0, err
		}
	}
}
