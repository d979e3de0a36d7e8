//go:build wine && windows

package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Microsoft/go-winio"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	filesystem "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/filesystem/v2alpha1"
)

const filesystemV1 = `\\.\pipe\csi-proxy-filesystem-v1`

// methods are the full names of a version's RPCs.
func methods(definition api.Definition) (names []string) {
	server := grpc.NewServer()
	definition.Register(server, api.Host{})
	for service, info := range server.GetServiceInfo() {
		for _, method := range info.Methods {
			names = append(names, "/"+service+"/"+method.Name)
		}
	}
	slices.Sort(names)
	return names
}

// One process serves every version on its own pipe, and answers every RPC of each,
// also an empty request. It runs on a simulated machine, since some RPCs act on an
// empty request.
func TestPipes_everyVersionAnswersEveryRPC(t *testing.T) {
	p := simulated(t).ready(t)
	var asking sync.WaitGroup // at once: to take a disk offline waits for those who use it
	for _, definition := range versions() {
		asking.Go(func() { askEverything(t, definition) })
	}
	asking.Wait()
	p.ready(t)
	if strings.Contains(p.output.String(), "panic") {
		t.Error("a request made the proxy panic")
	}
}

// askEverything makes an empty request of each RPC of a version.
func askEverything(t *testing.T, definition api.Definition) {
	t.Helper()
	connection := connect(t, definition.Pipe())
	names := methods(definition)
	if len(names) < 2 {
		t.Errorf("%s has only the RPCs %q", definition.Pipe(), names)
	}
	for _, method := range names {
		begin := time.Now()
		err := invoke(t, connection, method, &emptypb.Empty{}, &emptypb.Empty{})
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("%s %s took %v", definition.Pipe(), method, took)
		}
		switch status.Code(err) {
		case codes.OK, codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.Unauthenticated:
		default:
			t.Errorf("%s %s: an empty request is answered with %v", definition.Pipe(), method, err)
		}
	}
	if err := invoke(t, connection, "/v1.Nothing/AtAll", &emptypb.Empty{}, &emptypb.Empty{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("%s: an unknown service is answered with %v", definition.Pipe(), err)
	}
}

// The spellings that Windows takes for one pipe.
func TestPipes_areFoundByTheirSpellings(t *testing.T) {
	_, flag := kubelet(t)
	launch(t, flag).ready(t)
	for _, spelling := range []string{filesystemV1, `\\.\PIPE\CSI-Proxy-Filesystem-V1`, `//./pipe/csi-proxy-filesystem-v1`, `\\.\\pipe\\csi-proxy-filesystem-v1`} {
		if _, err := exists(t, connect(t, spelling), `C:\nowhere`); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s answers %v", spelling, err)
		}
	}
}

func exists(t *testing.T, connection *grpc.ClientConn, path string) (bool, error) {
	t.Helper()
	answer := &filesystem.PathExistsResponse{}
	err := invoke(t, connection, "/v1.Filesystem/PathExists", &filesystem.PathExistsRequest{Path: path}, answer)
	return answer.GetExists(), err
}

// Another process listens on one pipe; the others are served, and that one as
// soon as it is free.
func TestPipes_oneIsTaken(t *testing.T) {
	impostor, err := winio.ListenPipe(filesystemV1, nil)
	if err != nil {
		t.Fatal(err)
	}
	accepting := sync.WaitGroup{}
	accepting.Go(func() { // the proxy looks, again and again
		for {
			connection, err := impostor.Accept()
			if err != nil {
				return
			}
			_ = connection.Close()
		}
	})
	_, flag := kubelet(t)
	p := launch(t, flag)
	p.waitFor(t, "that all but one are served", func(states map[string]string, ready bool) bool {
		return ready && count(states, "served") == len(versions())-1 && strings.HasPrefix(states[filesystemV1], "taken by process")
	})
	p.waitFor(t, "that the log reports the taken pipe", func(map[string]string, bool) bool {
		log := p.output.String()
		return strings.Contains(log, "another process serves this pipe") && strings.Contains(log, `"level":"ERROR"`)
	})
	if err := impostor.Close(); err != nil {
		t.Fatal(err)
	}
	accepting.Wait()
	p.ready(t)
	if _, err := exists(t, connect(t, filesystemV1), `C:\nowhere`); status.Code(err) != codes.InvalidArgument {
		t.Errorf("the pipe answers %v", err)
	}
}

// A second process stays, with nothing, and takes over everything
// when the first one dies; that one's successor waits in turn.
func TestProcesses_sideBySideAndKilled(t *testing.T) {
	_, flag := kubelet(t)
	first := launch(t, flag).ready(t)
	for round := range 2 {
		second := launch(t, flag)
		second.waitFor(t, "that all pipes are the first one's", func(states map[string]string, _ bool) bool {
			return count(states, "taken by process") == len(versions())
		})
		first.kill()
		second.ready(t)
		if _, err := exists(t, connect(t, filesystemV1), `C:\nowhere`); status.Code(err) != codes.InvalidArgument {
			t.Errorf("round %d: after the first process was killed the pipe answers %v", round, err)
		}
		first = second
	}
	if strings.Contains(first.output.String(), "panic") {
		t.Error("a proxy panicked")
	}
}

// Asked to, a second instance ends with a reason, and code 1.
func TestProcesses_aSecondOneEndsIfAskedTo(t *testing.T) {
	_, flag := kubelet(t)
	first := launch(t, flag).ready(t)
	second := launch(t, flag, "--exit-if-taken")
	select {
	case <-second.ended:
	case <-time.After(readyTime):
		t.Fatal("the second process stays")
	}
	exit := &exec.ExitError{}
	if !errors.As(second.err, &exit) || exit.ExitCode() != 1 || !strings.Contains(second.output.String(), "are taken by other processes") {
		t.Errorf("the second process ends with %v", second.err)
	}
	first.ready(t)
}

// 64 clients at once: no call fails, none starves.
func TestPipes_64ClientsAtOnce(t *testing.T) {
	dir, flag := kubelet(t)
	launch(t, flag).ready(t)
	const clients, each = 64, 10
	var all sync.WaitGroup
	for i := range clients {
		connection := connect(t, filesystemV1)
		all.Go(func() {
			path := fmt.Sprintf(`%s\client%d`, dir, i)
			for range each {
				begin := time.Now()
				if err := makeAndRemove(t, connection, path); err != nil {
					t.Errorf("client %d: %v", i, err)
				}
				if took := time.Since(begin); took > 20*time.Second {
					t.Errorf("client %d waited for %v", i, took)
				}
			}
		})
	}
	all.Wait()
}

func makeAndRemove(t *testing.T, connection *grpc.ClientConn, path string) error {
	t.Helper()
	for _, step := range []struct {
		method  string
		request proto.Message
	}{
		{"Mkdir", &filesystem.MkdirRequest{Path: path}},
		{"PathExists", &filesystem.PathExistsRequest{Path: path}},
		{"Rmdir", &filesystem.RmdirRequest{Path: path}},
	} {
		if err := invoke(t, connection, "/v1.Filesystem/"+step.method, step.request, &emptypb.Empty{}); err != nil {
			return fmt.Errorf("%s: %w", step.method, err)
		}
	}
	return nil
}

// An over-long message is refused, and its connection stays.
func TestPipes_refuseOverlongMessages(t *testing.T) {
	_, flag := kubelet(t)
	launch(t, flag).ready(t)
	connection := connect(t, filesystemV1)
	for _, size := range []int{65 << 10, 1 << 20, 16 << 20} {
		if _, err := exists(t, connection, `C:\`+strings.Repeat("x", size)); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%d bytes are answered with %v", size, err)
		}
	}
	if _, err := exists(t, connection, `C:\`+strings.Repeat("x", 60<<10)); status.Code(err) != codes.InvalidArgument {
		t.Errorf("60 KiB are answered with %v", err)
	}
}

// Connections that never say a word, as upstream's client leaves them
// behind, and such that talk nonsense, block no other.
func TestPipes_bearSilentAndNonsensicalConnections(t *testing.T) {
	_, flag := kubelet(t)
	launch(t, flag).ready(t)
	for i := range 60 {
		ctx, cancel := context.WithTimeout(t.Context(), readyTime)
		raw, err := winio.DialPipeContext(ctx, filesystemV1)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = raw.Close() }()
		if i%2 == 0 {
			_, _ = io.WriteString(raw, "GET / HTTP/1.1\r\nHost: example\r\n\r\n")
		}
	}
	for range 5 {
		if _, err := exists(t, connect(t, filesystemV1), `C:\nowhere`); status.Code(err) != codes.InvalidArgument {
			t.Errorf("next to them a call is answered with %v", err)
		}
	}
}
