package guard

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// blocking is a controller whose creations and deletions wait for a release.
type blocking struct {
	volumes map[string]backend.Volume // by name
	// entered gets a channel for each waiting call; closing it releases the call.
	entered chan chan struct{}
}

func newBlocking() *blocking {
	return &blocking{volumes: map[string]backend.Volume{}, entered: make(chan chan struct{})}
}

func (b *blocking) Traits() backend.Traits {
	return backend.Traits{
		DriverName: "test", MinimumSize: 1, DefaultSize: 1, Clone: true,
		AccessModes: []backend.AccessMode{backend.SingleNodeWriter}, Filesystems: []string{"ext4"},
		Parameters: []string{"known"},
	}
}

func (b *blocking) CheckParameters(_, _ map[string]string) error { return nil }

func (b *blocking) wait(ctx context.Context) error {
	proceed := make(chan struct{})
	select {
	case b.entered <- proceed:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-proceed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *blocking) CreateVolume(ctx context.Context, spec backend.VolumeSpec) (backend.Volume, error) {
	if err := b.wait(ctx); err != nil {
		return backend.Volume{}, err
	}
	return backend.Volume{ID: "id-" + spec.Name, Name: spec.Name, Size: spec.Size}, nil
}

func (b *blocking) DeleteVolume(ctx context.Context, _ string) error {
	return b.wait(ctx)
}

func (b *blocking) Volume(_ context.Context, id string) (backend.Volume, error) {
	for _, volume := range b.volumes {
		if volume.ID == id {
			return volume, nil
		}
	}
	return backend.Volume{}, backend.ErrNotFound
}

func (b *blocking) VolumeByName(_ context.Context, name string) (backend.Volume, error) {
	if volume, ok := b.volumes[name]; ok {
		return volume, nil
	}
	return backend.Volume{}, backend.ErrNotFound
}

func (b *blocking) Volumes(context.Context, string, int) ([]backend.Volume, error) { return nil, nil }

func request(name string) CreateRequest {
	return CreateRequest{
		Name: name, Range: backend.SizeRange{Required: 10},
		Capabilities: []backend.Capability{{Mode: backend.SingleNodeWriter}},
	}
}

// inFlight runs call in the background up to the controller's wait.
func (b *blocking) inFlight(t *testing.T, call func() error) (finish func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- call() }()
	var proceed chan struct{}
	select {
	case proceed = <-b.entered:
	case err := <-done:
		t.Fatalf("the call did not get as far as its wait: %v", err)
	}
	return func() {
		t.Helper()
		close(proceed)
		if err := <-done; err != nil {
			t.Fatalf("the call in flight: %v", err)
		}
	}
}

func TestCreateVolume_secondCallForTheNameIsBusyAtOnce(t *testing.T) {
	controller := newBlocking()
	g := New(controller)
	finish := controller.inFlight(t, func() error {
		_, err := g.CreateVolume(t.Context(), request("a"))
		return err
	})
	if _, err := g.CreateVolume(t.Context(), request("a")); !errors.Is(err, backend.ErrBusy) {
		t.Fatalf("got %v; want ErrBusy", err)
	}
	other := controller.inFlight(t, func() error {
		_, err := g.CreateVolume(t.Context(), request("b"))
		return err
	})
	other()
	finish()
}

func TestCreateVolume_locksItsSourceAgainstDeletionButNotAgainstAnotherClone(t *testing.T) {
	controller := newBlocking()
	controller.volumes["source"] = backend.Volume{ID: "id-source", Name: "source", Size: 10}
	g := New(controller)
	clone := func(name string) func() error {
		return func() error {
			r := request(name)
			r.Source.VolumeID = "id-source"
			_, err := g.CreateVolume(t.Context(), r)
			return err
		}
	}
	first := controller.inFlight(t, clone("one"))
	second := controller.inFlight(t, clone("two"))
	if err := g.DeleteVolume(t.Context(), "id-source"); !errors.Is(err, backend.ErrBusy) {
		t.Fatalf("deleting the source of a running clone: %v; want ErrBusy", err)
	}
	first()
	second()
	controller.inFlight(t, func() error { return g.DeleteVolume(t.Context(), "id-source") })()
}

func TestDeleteVolume_excludesCreationOfItsName(t *testing.T) {
	controller := newBlocking()
	controller.volumes["a"] = backend.Volume{ID: "id-a", Name: "a", Size: 10}
	g := New(controller)
	finish := controller.inFlight(t, func() error { return g.DeleteVolume(t.Context(), "id-a") })
	if _, err := g.CreateVolume(t.Context(), request("a")); !errors.Is(err, backend.ErrBusy) {
		t.Fatalf("creating a name while its volume is deleted: %v; want ErrBusy", err)
	}
	finish()
}

func TestCreateVolume_cancelledCallGivesItsKeyBack(t *testing.T) {
	controller := newBlocking()
	g := New(controller)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := g.CreateVolume(ctx, request("a"))
		done <- err
	}()
	<-controller.entered
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	controller.inFlight(t, func() error {
		_, err := g.CreateVolume(t.Context(), request("a"))
		return err
	})()
}

func TestCreateVolume_namesTheUnknownAndTheKnown(t *testing.T) {
	r := request("a")
	r.Parameters = map[string]string{"zeta": "1", "alpha": "2"}
	_, err := New(newBlocking()).CreateVolume(t.Context(), r)
	const want = `create volume "a": invalid argument: parameters: unknown "alpha", "zeta"; known are known`
	if !errors.Is(err, backend.ErrInvalid) || err.Error() != want {
		t.Fatalf("got  %v\nwant %s", err, want)
	}
}

func TestFeatures_areThoseImplemented(t *testing.T) {
	g := New(newBlocking())
	if got := g.Features(); got != (Features{}) {
		t.Fatalf("got %+v; the controller offers none", got)
	}
	if _, err := g.Expand(t.Context(), "id", backend.SizeRange{Required: 1}); !errors.Is(err, backend.ErrUnsupported) {
		t.Fatalf("got %v; want ErrUnsupported", err)
	}
}

func TestAccessible(t *testing.T) {
	node := func(name string) backend.Topology { return backend.Topology{"node": name} }
	for name, c := range map[string]struct {
		have []backend.Topology
		want *backend.TopologyRequirement
		ok   bool
	}{
		"no requirement":       {[]backend.Topology{node("a")}, nil, true},
		"one of the requisite": {[]backend.Topology{node("a")}, &backend.TopologyRequirement{Requisite: []backend.Topology{node("b"), node("a")}}, true},
		"none of them":         {[]backend.Topology{node("a")}, &backend.TopologyRequirement{Requisite: []backend.Topology{node("b")}}, false},
		"only preferred":       {[]backend.Topology{node("a")}, &backend.TopologyRequirement{Preferred: []backend.Topology{node("b")}}, true},
		"reachable anywhere":   {nil, &backend.TopologyRequirement{Requisite: []backend.Topology{node("b")}}, true},
		"zone of the node":     {[]backend.Topology{{"zone": "1"}}, &backend.TopologyRequirement{Requisite: []backend.Topology{{"zone": "1", "node": "a"}}}, true},
	} {
		if got := accessible(c.have, c.want); got != c.ok {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// A class with a flag that no node will mount makes no volume.
func TestCreateVolume_refusesTheMountFlagsThatTheNodeRefuses(t *testing.T) {
	controller := newBlocking()
	for _, flag := range []string{"errors=panic", `errors="panic"`, "bind", "rw=1"} {
		wanted := request("a")
		wanted.Capabilities[0].MountFlags = []string{flag}
		if _, err := New(controller).CreateVolume(t.Context(), wanted); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("mount flag %s: %v", flag, err)
		}
	}
	if len(controller.volumes) != 0 {
		t.Errorf("made %v", controller.volumes)
	}
}
