package server

import (
	"context"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/progress"
)

// copying is a backend whose creations take as long as a test wants.
type copying struct {
	*plain
	begun, leave chan struct{}
}

func (c copying) CreateVolume(ctx context.Context, spec backend.VolumeSpec) (backend.Volume, error) {
	task := progress.Begin(ctx, "copying", spec.Size)
	defer task.End()
	task.Set(spec.Size / 4)
	close(c.begun)
	<-c.leave
	return c.plain.CreateVolume(ctx, spec)
}

// The driver lists what it is doing, under the name that the caller knows, also after the
// caller left.
func TestListOperations_whatADriverIsDoing(t *testing.T) {
	slow := copying{plain: newPlain(), begun: make(chan struct{}), leave: make(chan struct{})}
	i := start(t, Controller, slow)
	asking, err := client.Dial("unix://"+i.socket, client.Options{Driver: "d.example"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = asking.Close() })
	list := func() []progress.Operation {
		found, err := asking.Operations(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if idle := list(); len(idle) != 0 {
		t.Errorf("an idle driver does %+v", idle)
	}

	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	ended := make(chan error, 1)
	request := &csi.CreateVolumeRequest{
		Name: "pvc-1", VolumeCapabilities: single(),
		CapacityRange: &csi.CapacityRange{RequiredBytes: 4 << 20},
	}
	go func() {
		_, err := i.CreateVolume(ctx, request)
		ended <- err
	}()
	<-slow.begun
	for range 2 {
		found := list()
		if len(found) != 1 || found[0].Started.IsZero() {
			t.Fatalf("the driver does %+v, want one operation", found)
		}
		found[0].Started = found[0].Started.UTC()
		want := progress.Operation{Call: "CreateVolume", Object: "pvc-1", Doing: "copying", Started: found[0].Started,
			Done: 1 << 20, Total: 4 << 20, Unit: progress.Bytes}
		if found[0] != want {
			t.Errorf("the driver does %+v, want %+v", found[0], want)
		}
		wantMetric(t, i, "holdfast_progress_operations", 1)
		wantMetric(t, i, "holdfast_progress_done_bytes", 1<<20)
		wantMetric(t, i, "holdfast_progress_total_bytes", 4<<20)
		leave() // the second time, the caller has left
		if err := <-ended; err == nil {
			t.Error("the call did not end with its context")
		}
		ended <- context.Canceled
	}
	close(slow.leave)
	if log := i.log.String(); strings.Contains(log, `"rpc":"ListOperations"`) {
		t.Errorf("the log has questions that are repeated all the time:\n%s", log)
	}
}

// A driver that has no such service, such as another vendor's, is asked once.
func TestListOperations_codeOfADriverThatLacksIt(t *testing.T) {
	lacking := client.New(client.NewInProcess(nil), client.Options{Driver: "d.example"})
	for range 2 {
		if _, err := lacking.Operations(t.Context()); !client.Lacks(err) {
			t.Errorf("got %v, want the code %s", err, codes.Unimplemented)
		}
	}
}

// wantMetric checks the only series of a metric.
func wantMetric(t *testing.T, i *instance, name string, want float64) {
	t.Helper()
	families, err := i.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		if all := family.GetMetric(); len(all) != 1 || all[0].GetGauge().GetValue() != want || !strings.Contains(all[0].String(), "copying") {
			t.Errorf("%s is %v, want %v", name, all, want)
		}
		return
	}
	t.Errorf("there is no %s", name)
}
