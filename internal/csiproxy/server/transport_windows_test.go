package server_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/Microsoft/go-winio"
	"google.golang.org/grpc"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/server"
)

func native(t *testing.T) server.Transport {
	t.Helper()
	transport, err := server.NewTransport()
	if err != nil {
		t.Fatal(err)
	}
	return transport
}

// own is a version whose pipe no other test has.
func own(t *testing.T, number int, do operation) api.Definition {
	t.Helper()
	return echo(fmt.Sprintf("t%d", os.Getpid()), fmt.Sprintf("v%d", number), do)
}

// A named pipe with the version's name carries gRPC.
func TestRun_answersOnANamedPipe(t *testing.T) {
	definition := own(t, 1, same)
	start(t, server.Options{Versions: []api.Definition{definition}, Transport: native(t)})
	for i := range 3 { // wine lets the first of all clients wait for ever, see useUp
		connection := dialer(winio.DialPipeContext).connect(t, definition.Pipe())
		answer, err := call(t.Context(), connection, "v1", "first")
		if err != nil || answer != "first" {
			t.Fatalf("call %d answers %q, %v", i, answer, err)
		}
	}
}

func TestRun_knowsTheProcessThatCalls(t *testing.T) {
	definition := own(t, 1, same)
	r := start(t, server.Options{Versions: []api.Definition{definition}, Transport: native(t)})
	connection := dialer(winio.DialPipeContext).connect(t, definition.Pipe())
	if _, err := call(t.Context(), connection, "v1", "text"); err != nil {
		t.Fatal(err)
	}
	until(t, "a log line with the process", func() bool {
		return contains(r.log.String(), fmt.Sprintf(`"pid":%d`, os.Getpid()), ".exe")
	})
}

// A pipe that another process serves is left to it.
func TestListen_twiceIsRefused(t *testing.T) {
	definition := own(t, 1, same)
	first := start(t, server.Options{Versions: []api.Definition{definition}, Transport: native(t)})
	second := start(t, server.Options{Versions: []api.Definition{definition, own(t, 2, same)}, Transport: native(t)})
	if state := second.Pipes()[0]; state.State != server.Taken || state.Owner.ID != uint32(os.Getpid()) {
		t.Errorf("the second server says of the pipe: %+v", state)
	}
	if state := second.Pipes()[1].State; state != server.Served {
		t.Errorf("the second server's own pipe is %q", state)
	}
	if err := first.end(); err != nil {
		t.Fatal(err)
	}
	until(t, "that the second server has the pipe", func() bool { return second.Pipes()[0].State == server.Served })
}

func TestRun_leavesNoPipeBehind(t *testing.T) {
	definition := own(t, 1, same)
	r := start(t, server.Options{Versions: []api.Definition{definition}, Transport: native(t)})
	var connections []*grpc.ClientConn
	for range 4 {
		connections = append(connections, dialer(winio.DialPipeContext).connect(t, definition.Pipe()))
		if _, err := call(t.Context(), connections[len(connections)-1], "v1", ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	if _, err := winio.DialPipeContext(t.Context(), definition.Pipe()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the end the pipe answers %v", err)
	}
}
