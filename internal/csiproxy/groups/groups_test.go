package groups_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups/groupstest"
)

// Every pipe that a driver in the field may open.
func TestVersions_haveThe23PipesOfTheGroupAPI(t *testing.T) {
	var pipes []string
	for _, definition := range groups.Versions() {
		pipes = append(pipes, definition.Pipe())
	}
	want := []string{
		`\\.\pipe\csi-proxy-filesystem-v2alpha1`,
		`\\.\pipe\csi-proxy-filesystem-v1`,
		`\\.\pipe\csi-proxy-filesystem-v1beta2`,
		`\\.\pipe\csi-proxy-filesystem-v1beta1`,
		`\\.\pipe\csi-proxy-filesystem-v1alpha1`,
		`\\.\pipe\csi-proxy-disk-v1`,
		`\\.\pipe\csi-proxy-disk-v1beta3`,
		`\\.\pipe\csi-proxy-disk-v1beta2`,
		`\\.\pipe\csi-proxy-disk-v1beta1`,
		`\\.\pipe\csi-proxy-disk-v1alpha1`,
		`\\.\pipe\csi-proxy-volume-v2alpha1`,
		`\\.\pipe\csi-proxy-volume-v1`,
		`\\.\pipe\csi-proxy-volume-v1beta3`,
		`\\.\pipe\csi-proxy-volume-v1beta2`,
		`\\.\pipe\csi-proxy-volume-v1beta1`,
		`\\.\pipe\csi-proxy-volume-v1alpha1`,
		`\\.\pipe\csi-proxy-smb-v1`,
		`\\.\pipe\csi-proxy-smb-v1beta2`,
		`\\.\pipe\csi-proxy-smb-v1beta1`,
		`\\.\pipe\csi-proxy-smb-v1alpha1`,
		`\\.\pipe\csi-proxy-iscsi-v1alpha2`,
		`\\.\pipe\csi-proxy-iscsi-v1alpha1`,
		`\\.\pipe\csi-proxy-system-v1alpha1`,
	}
	if diff := cmp.Diff(want, pipes); diff != "" {
		t.Errorf("pipes (-want +got):\n%s", diff)
	}
	for _, definition := range groups.Versions() {
		if err := api.CheckVersion(definition.Version); err != nil {
			t.Error(err)
		}
	}
}

// each calls do for every version, each with its own machine.
func each(t *testing.T, machine func() *groupstest.Machine, do func(*testing.T, *groupstest.Server, *groupstest.Machine)) {
	t.Helper()
	for _, definition := range groups.Versions() {
		t.Run(groupstest.Name(definition), func(t *testing.T) {
			machine := machine()
			do(t, groupstest.Serve(t, definition, machine.Host()), machine)
		})
	}
}

// Every field may be missing. A call of a request without any is answered or
// refused, whatever the host says.
func TestEmptyRequest_isAnsweredOrRefused(t *testing.T) {
	empty := func() *groupstest.Machine { return &groupstest.Machine{} }
	for _, machine := range []func() *groupstest.Machine{empty, groupstest.Answering} {
		each(t, machine, func(t *testing.T, server *groupstest.Server, _ *groupstest.Machine) {
			for _, method := range server.Methods {
				if _, err := server.Call(t, method, nil); err != nil && !errors.Is(err, backend.ErrInvalid) {
					t.Errorf("%s: %v", method, err)
				}
			}
		})
	}
}

// Interceptors get the host's own error, of which they make a code.
func TestErrorOfTheHost_comesToInterceptorsAsItIs(t *testing.T) {
	failure := fmt.Errorf("step: %w", backend.ErrPrecondition)
	failing := func() *groupstest.Machine {
		machine := groupstest.Answering()
		machine.Err = failure
		return machine
	}
	each(t, failing, func(t *testing.T, server *groupstest.Server, machine *groupstest.Machine) {
		for _, method := range server.Methods {
			reached := false
			// Field 1 is a disk's number as text, a name or a path, or a portal.
			for _, request := range [][]byte{groupstest.Text(1, "1"), groupstest.Number(1, 1), groupstest.Sub(1, groupstest.Text(1, "h"))} {
				response, err := server.Call(t, method, request)
				if machine.Calls() == nil {
					continue // not the request of this call
				}
				reached = true
				//nolint:errorlint // it must be the same error, not one that wraps it
				if err != failure || response != nil {
					t.Errorf("%s: %x, %v", method, response, err)
				}
			}
			if !reached {
				t.Errorf("%s: the host was never asked", method)
			}
		}
	})
}

func TestBytesThatAreNotAMessage_reachNoHost(t *testing.T) {
	each(t, groupstest.Answering, func(t *testing.T, server *groupstest.Server, machine *groupstest.Machine) {
		for _, method := range server.Methods {
			if _, err := server.Call(t, method, []byte{0xff}); status.Code(errors.Unwrap(err)) != codes.Internal {
				t.Errorf("%s: %v", method, err)
			}
		}
		if calls := machine.Calls(); calls != nil {
			t.Errorf("the host was asked %q", calls)
		}
	})
}

func TestFieldsThatAVersionHasNot_areIgnored(t *testing.T) {
	later := groupstest.Message(groupstest.Text(100, "later"), groupstest.Number(101, 1))
	each(t, groupstest.Answering, func(t *testing.T, server *groupstest.Server, _ *groupstest.Machine) {
		for _, method := range server.Methods {
			without, failure := server.Call(t, method, nil)
			with, err := server.Call(t, method, later)
			if fmt.Sprint(err) != fmt.Sprint(failure) || len(with) != len(without) {
				t.Errorf("%s: %x, %v; without: %x, %v", method, with, err, without, failure)
			}
		}
	})
}

func TestHostWithoutAPart_refusesItsCalls(t *testing.T) {
	for _, definition := range groups.Versions() {
		server := groupstest.Serve(t, definition, api.Host{})
		for _, method := range server.Methods {
			if _, err := server.Call(t, method, nil); !errors.Is(err, backend.ErrUnsupported) {
				t.Errorf("%s %s: %v, want ErrUnsupported", groupstest.Name(definition), method, err)
			}
		}
	}
}

// rpc is a call of a version as a server has it.
type rpc struct {
	name   string
	server any
	desc   grpc.MethodDesc
}

// recorder is a registrar that serves nothing.
type recorder struct{ rpcs []rpc }

func (r *recorder) RegisterService(desc *grpc.ServiceDesc, server any) {
	for _, method := range desc.Methods {
		r.rpcs = append(r.rpcs, rpc{desc.ServiceName + "/" + method.MethodName, server, method})
	}
}

// No bytes in any request of any version do more than be refused, and what is
// answered can be sent.
func FuzzRequests(f *testing.F) {
	machine := groupstest.Answering()
	registered := &recorder{}
	for _, definition := range groups.Versions() {
		definition.Register(registered, machine.Host())
	}
	for i := range registered.rpcs {
		f.Add(uint(i), []byte{})
		f.Add(uint(i), groupstest.Text(1, "1"))
		f.Add(uint(i), groupstest.Message(groupstest.Number(1, 1), groupstest.Number(2, -1)))
		f.Add(uint(i), groupstest.Message(groupstest.Sub(1, groupstest.Number(2, 1<<32-1)), groupstest.Number(3, 9)))
	}
	f.Fuzz(func(t *testing.T, choice uint, data []byte) {
		call := registered.rpcs[choice%uint(len(registered.rpcs))]
		var notRead error
		decode := func(message any) error {
			notRead = proto.Unmarshal(data, message.(proto.Message))
			return notRead
		}
		response, err := call.desc.Handler(call.server, context.Background(), decode, nil)
		calls := machine.Calls()
		switch {
		case notRead != nil:
			if !errors.Is(err, notRead) || calls != nil {
				t.Errorf("%s: %v after %q", call.name, err, calls)
			}
		case err != nil:
			refused := errors.Is(err, backend.ErrInvalid) && calls == nil
			if notFound := errors.Is(err, backend.ErrNotFound) && slices.Equal(calls, []string{"List"}); !refused && !notFound {
				t.Errorf("%s: %v after %q", call.name, err, calls)
			}
		case len(calls) != 1:
			t.Errorf("%s asked the host %q", call.name, calls)
		default:
			if _, err := proto.Marshal(response.(proto.Message)); err != nil {
				t.Errorf("%s: %v", call.name, err)
			}
		}
	})
}
