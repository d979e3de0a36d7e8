package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// remote is a controller with the optional features of a backend over an API: it finds
// names itself, merges changes, joins attachments, folds the case of parameters and has
// sizes that depend on them.
type remote struct {
	traits  backend.Traits
	volumes map[string]backend.Volume // by name
	lookups int
	// working is asked for by every call of Expand, Modify, Attach and Detach.
	working chan struct{}
	// matches answers Matches.
	matches error
	// finished counts the snapshots completed after they were taken, deleted the deletions.
	finished, deleted int
	modified          map[string]string
}

func newRemote() *remote {
	return &remote{
		volumes: map[string]backend.Volume{}, working: make(chan struct{}),
		traits: backend.Traits{
			DriverName: "test", MinimumSize: 1, MaximumSize: 1000, DefaultSize: 1,
			AccessModes: []backend.AccessMode{backend.SingleNodeWriter}, Filesystems: []string{"ext4"},
			Parameters: []string{"type", "tag_*"}, MutableParameters: []string{"iops"},
			CreateFindsName: true, MergesChanges: true, JoinsAttachment: true,
		},
	}
}

func (r *remote) Traits() backend.Traits                          { return r.traits }
func (r *remote) CheckParameters(_, _ map[string]string) error    { return nil }
func (r *remote) CheckSnapshotParameters(map[string]string) error { return nil }

func (r *remote) NormalizeParameters(parameters, mutable map[string]string) (map[string]string, map[string]string, error) {
	folded := map[string]string{}
	for key, value := range parameters {
		if _, twice := folded[strings.ToLower(key)]; twice {
			return nil, nil, fmt.Errorf("%w: %s is given twice", backend.ErrInvalid, key)
		}
		folded[strings.ToLower(key)] = value
	}
	return folded, mutable, nil
}

func (r *remote) Sizes(parameters, _ map[string]string) (int64, int64, error) {
	if parameters["type"] == "cold" {
		return 125, 500, nil
	}
	return 0, 0, nil
}

func (r *remote) Matches(backend.Volume, backend.VolumeSpec) error { return r.matches }

func (r *remote) CreateVolume(_ context.Context, spec backend.VolumeSpec) (backend.Volume, error) {
	if volume, ok := r.volumes[spec.Name]; ok {
		return volume, nil
	}
	volume := backend.Volume{ID: "id-" + spec.Name, Name: spec.Name, Size: spec.Size, Source: spec.Source}
	r.volumes[spec.Name] = volume
	return volume, nil
}

func (r *remote) Volume(_ context.Context, id string) (backend.Volume, error) {
	for _, volume := range r.volumes {
		if volume.ID == id {
			return volume, nil
		}
	}
	return backend.Volume{}, backend.ErrNotFound
}

func (r *remote) VolumeByName(_ context.Context, name string) (backend.Volume, error) {
	r.lookups++
	if volume, ok := r.volumes[name]; ok {
		return volume, nil
	}
	return backend.Volume{}, backend.ErrNotFound
}

func (r *remote) Volumes(context.Context, string, int) ([]backend.Volume, error) { return nil, nil }

// overlap returns when two calls are inside the backend at once, or the context ends.
func (r *remote) overlap(ctx context.Context) error {
	select {
	case r.working <- struct{}{}:
	case <-r.working:
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (r *remote) Expand(ctx context.Context, v backend.Volume, size int64) (backend.Volume, error) {
	return backend.Volume{ID: v.ID, Size: size}, r.overlap(ctx)
}

func (r *remote) Modify(ctx context.Context, _ backend.Volume, _, metadata map[string]string) error {
	r.modified = metadata
	return r.overlap(ctx)
}

func (r *remote) Attach(ctx context.Context, _, _ string, _ backend.AttachSpec) (map[string]string, error) {
	return nil, r.overlap(ctx)
}

func (r *remote) Detach(ctx context.Context, _, _ string) error { return r.overlap(ctx) }

func (r *remote) CreateSnapshot(context.Context, backend.SnapshotSpec) (backend.Snapshot, error) {
	return backend.Snapshot{}, errors.New("a second snapshot")
}

func (r *remote) DeleteVolume(context.Context, string) error {
	r.deleted++
	return backend.ErrNotFound
}

func (r *remote) DeleteSnapshot(context.Context, string) error {
	r.deleted++
	return backend.ErrNotFound
}
func (r *remote) Snapshot(context.Context, string) (backend.Snapshot, error) {
	return backend.Snapshot{}, backend.ErrNotFound
}

func (r *remote) SnapshotByName(_ context.Context, name string) (backend.Snapshot, error) {
	return backend.Snapshot{ID: "snap", Name: name, SourceID: "id-a"}, nil
}

func (r *remote) Snapshots(context.Context, backend.SnapshotFilter, string, int) ([]backend.Snapshot, error) {
	return nil, nil
}

func (r *remote) FinishSnapshot(_ context.Context, s backend.Snapshot, _ backend.SnapshotSpec) (backend.Snapshot, error) {
	r.finished++
	return s, nil
}

func TestCreateVolume_aBackendThatFindsNamesIsNotAskedBefore(t *testing.T) {
	controller := newRemote()
	g := New(controller)
	for range 2 {
		if _, err := g.CreateVolume(t.Context(), request("a")); err != nil {
			t.Fatal(err)
		}
	}
	larger := request("a")
	larger.Range.Required = 20
	if _, err := g.CreateVolume(t.Context(), larger); !errors.Is(err, backend.ErrExists) {
		t.Errorf("a larger one of that name: %v; want ErrExists", err)
	}
	controller.matches = fmt.Errorf("%w: another type", backend.ErrExists)
	if _, err := g.CreateVolume(t.Context(), request("a")); !errors.Is(err, backend.ErrExists) {
		t.Errorf("one that does not match: %v; want ErrExists", err)
	}
	if controller.lookups != 0 {
		t.Errorf("the name was looked up %d times", controller.lookups)
	}
}

func TestCreateVolume_aRepeatFindsItsVolumeWhenTheSourceIsGone(t *testing.T) {
	controller := newRemote()
	r := request("restored")
	r.Source = backend.Source{SnapshotID: "snap-gone"}
	controller.volumes["restored"] = backend.Volume{ID: "id-restored", Name: "restored", Size: 10, Source: r.Source}
	volume, err := New(controller).CreateVolume(t.Context(), r)
	if err != nil || volume.ID != "id-restored" {
		t.Errorf("got %+v, %v; want the volume that is there", volume, err)
	}
	r.Name = "never made"
	if _, err := New(controller).CreateVolume(t.Context(), r); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("without a volume: %v; want ErrNotFound", err)
	}
}

func TestCreateVolume_sizesAndNamesOfParametersAreTheBackends(t *testing.T) {
	controller := newRemote()
	g := New(controller)
	cold := request("cold")
	cold.Range = backend.SizeRange{}
	cold.Parameters = map[string]string{"TYPE": "cold", "tag_1": "x"}
	volume, err := g.CreateVolume(t.Context(), cold)
	if err != nil || volume.Size != 125 {
		t.Errorf("got %+v, %v; want the 125 bytes that the type takes", volume, err)
	}
	for why, c := range map[string]struct {
		parameters map[string]string
		required   int64
		want       error
	}{
		"given twice":     {map[string]string{"type": "a", "Type": "b"}, 10, backend.ErrInvalid},
		"a bare prefix":   {map[string]string{"tag_": "x"}, 10, backend.ErrInvalid},
		"unknown":         {map[string]string{"tags": "x"}, 10, backend.ErrInvalid},
		"above the type":  {map[string]string{"type": "cold"}, 501, backend.ErrOutOfRange},
		"above all types": {nil, 1001, backend.ErrOutOfRange},
	} {
		r := request(why)
		r.Parameters, r.Range.Required = c.parameters, c.required
		if _, err := g.CreateVolume(t.Context(), r); !errors.Is(err, c.want) {
			t.Errorf("%s: %v; want %v", why, err, c.want)
		}
	}
}

func TestCalls_reachABackendTogetherThatTakesThemTogether(t *testing.T) {
	use := request("").Capabilities[0]
	for name, calls := range map[string][2]func(*Guard) error{
		"expand and modify": {
			func(g *Guard) error {
				_, err := g.Expand(t.Context(), "id-a", backend.SizeRange{Required: 20})
				return err
			},
			func(g *Guard) error { return g.Modify(t.Context(), "id-a", map[string]string{"iops": "1"}, nil) },
		},
		"attach and detach": {
			func(g *Guard) error {
				_, err := g.Attach(t.Context(), "id-a", "n", backend.AttachSpec{Capability: use})
				return err
			},
			func(g *Guard) error { return g.Detach(t.Context(), "id-a", "n") },
		},
	} {
		controller := newRemote()
		controller.volumes["a"] = backend.Volume{ID: "id-a", Name: "a", Size: 10}
		g := New(controller)
		first := make(chan error, 1)
		go func() { first <- calls[0](g) }()
		if err := errors.Join(calls[1](g), <-first); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestModify_metadataIsNotAParameter(t *testing.T) {
	controller := newRemote()
	controller.volumes["a"] = backend.Volume{ID: "id-a", Name: "a", Size: 10}
	go func() { <-controller.working }()
	who := map[string]string{"csi.storage.k8s.io/pvc/name": "claim"}
	if err := New(controller).Modify(t.Context(), "id-a", map[string]string{"iops": "1"}, who); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(who, controller.modified); diff != "" {
		t.Error(diff)
	}
}

func TestCreateSnapshot_aRepeatCompletesTheSnapshot(t *testing.T) {
	controller := newRemote()
	_, err := New(controller).CreateSnapshot(t.Context(), backend.SnapshotSpec{Name: "s", SourceID: "id-a"})
	if err != nil || controller.finished != 1 {
		t.Errorf("finished %d times, %v; want once", controller.finished, err)
	}
}

func TestDelete_callsTheBackendIfLookupsLagBehind(t *testing.T) {
	for _, lags := range []bool{false, true} {
		controller := newRemote()
		controller.traits.LagsBehind = lags
		g := New(controller)
		if err := errors.Join(g.DeleteVolume(t.Context(), "vol"), g.DeleteSnapshot(t.Context(), "snap")); err != nil {
			t.Errorf("lags = %t: %v", lags, err)
		}
		if asked := controller.deleted == 2; asked != lags {
			t.Errorf("lags = %t: %d deletions were asked for", lags, controller.deleted)
		}
	}
}
