package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/fuzztest"
)

// sentFrame is a frame as a client sends it.
func sentFrame(channel byte, content string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{channel}, uint32(len(content))), content...)
}

// FuzzExec is a client that sends any bytes after the handshake of exec. The command ends
// with the client, and gets no input that the client did not send.
func FuzzExec(f *testing.F) {
	f.Add(append(sentFrame(channelStdin, "data"), sentFrame(channelStdin, "")...))
	f.Add(append(sentFrame(channelSize, `{"columns":1}`), sentFrame(channelSignal, "9")...))
	f.Add(append(sentFrame(channelSignal, "65"), sentFrame(channelStdin, "x")...))
	f.Add([]byte{channelStdin, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add(sentFrame(channelStdout, "x"))
	f.Add(bytes.Repeat(sentFrame(channelSize, `{}`), 100))
	f.Fuzz(func(t *testing.T, sent []byte) {
		host := &fakeHost{exec: func(ctx context.Context, _ ExecRequest, streams ExecStreams) (int, error) {
			read, _ := io.ReadAll(streams.Stdin)
			if !bytes.Contains(sent, read) && len(read) > len(sent) {
				t.Errorf("the command read %d bytes of %d", len(read), len(sent))
			}
			for {
				select {
				case signal := <-streams.Signals:
					if signal <= 0 || signal > maximumSignal {
						t.Errorf("the command gets the signal %d", signal)
					}
				case <-streams.Sizes:
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			}
		}}
		command := session{stdin: true, window: execWindow, run: func(ctx context.Context, streams ExecStreams) (int, error) {
			return host.Exec(ctx, ExecRequest{Stdin: true}, streams)
		}}
		ours, theirs := net.Pipe()
		fuzztest.Cost{}.Within(t, len(sent), func() {
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			command.serve(t.Context(), bufio.NewReader(bytes.NewReader(sent)), &frameWriter{conn: ours})
			_, _ = ours.Close(), theirs.Close()
		})
	})
}
