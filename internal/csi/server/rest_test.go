package server

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

// Memory is released once after the start, and once after work. A CO that polls neither
// delays it nor causes it again.
func TestRest_followsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rests atomic.Int64
		o := options(All, newPlain(), &instance{engine: &engine{}, socket: "/csi.sock"})
		o.Logger, o.Registerer, o.Rest = slog.New(slog.DiscardHandler), nil, func() { rests.Add(1) }
		server, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		call := func(method string) {
			t.Helper()
			answer := func(context.Context, any) (any, error) { return &csi.ProbeResponse{}, nil }
			info := &grpc.UnaryServerInfo{FullMethod: "/csi.v1.Node/" + method}
			if _, err := server.Intercept(t.Context(), &csi.ProbeRequest{}, info, answer); err != nil {
				t.Fatal(err)
			}
		}
		// callFor calls methods each second.
		callFor := func(seconds int, methods ...string) {
			t.Helper()
			for range seconds {
				for _, method := range methods {
					call(method)
				}
				time.Sleep(time.Second)
			}
			synctest.Wait()
		}
		for _, step := range []struct {
			name    string
			seconds int
			calls   []string
			want    int64 // in all
		}{
			{"work after the start", 30, []string{"NodeStageVolume", "Probe"}, 0},
			{"polls", 60, []string{"Probe", "NodeGetVolumeStats", "GetCapacity", "ListVolumes", "ControllerListVolumeHealth"}, 1},
			{"work again", 5, []string{"DeleteVolume"}, 1},
			{"nothing", 60, nil, 2},
		} {
			if callFor(step.seconds, step.calls...); rests.Load() != step.want {
				t.Errorf("%s: memory was released %d times; want %d", step.name, rests.Load(), step.want)
			}
		}
	})
}
