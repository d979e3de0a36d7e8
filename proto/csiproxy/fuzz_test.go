package csiproxy_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	. "github.com/holdfast-csi/holdfast/internal/csiproxy/groups/groupstest"
	"github.com/holdfast-csi/holdfast/proto/csiproxy"
)

// handlers is a registrar that keeps the calls of all versions for use without a
// connection.
type handlers struct {
	calls []func(context.Context, []byte) error
}

// RegisterService implements grpc.ServiceRegistrar.
func (h *handlers) RegisterService(desc *grpc.ServiceDesc, service any) {
	for _, method := range desc.Methods {
		h.calls = append(h.calls, func(ctx context.Context, request []byte) error {
			decode := func(message any) error { return proto.Unmarshal(request, message.(proto.Message)) }
			_, err := method.Handler(service, ctx, decode, nil)
			return err
		})
	}
}

// No call of any version panics, with any bytes.
func FuzzCalls_neverPanic(f *testing.F) {
	machine := Answering()
	all := &handlers{}
	for _, definition := range csiproxy.Versions() {
		definition.Register(all, machine.Host())
	}
	for i := range all.calls {
		f.Add(uint(i), []byte(nil))
		f.Add(uint(i), Message(Sub(1, Text(1, "10.0.0.1"), Number(2, 1<<31)), Text(2, iqn), Number(3, -1), Number(4, 9)))
		f.Add(uint(i), Message(Text(1, VolumeID), Text(2, path), Text(3, path), Text(4, "u"), Text(5, "s")))
		f.Add(uint(i), Message(Number(1, 7), Yes(2)))
	}
	f.Fuzz(func(_ *testing.T, call uint, request []byte) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_ = all.calls[call%uint(len(all.calls))](ctx, request)
		machine.Calls()
	})
}
