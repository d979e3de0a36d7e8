package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// CreateRequest asks for a volume as the CO words it.
type CreateRequest struct {
	Name              string
	Range             backend.SizeRange
	Parameters        map[string]string
	MutableParameters map[string]string
	Source            backend.Source
	Capabilities      []backend.Capability
	Topology          *backend.TopologyRequirement
	Secrets           map[string]string
	Metadata          map[string]string
}

// CreateVolume makes the volume, or returns the one that an equal request made
// before. A repeat with other arguments is ErrExists.
func (g *Guard) CreateVolume(ctx context.Context, request CreateRequest) (backend.Volume, error) {
	request, err := g.normalized(request)
	if err == nil {
		err = g.checkCreate(request)
	}
	if err != nil {
		return backend.Volume{}, fmt.Errorf("create volume %q: %w", request.Name, err)
	}
	unlock, err := g.lock("volume "+request.Name, volumeName(request.Name))
	if err != nil {
		return backend.Volume{}, err
	}
	defer unlock()
	volume, err := g.findOrCreate(ctx, request)
	if err != nil {
		return backend.Volume{}, fmt.Errorf("create volume %q: %w", request.Name, err)
	}
	return volume, nil
}

func (g *Guard) checkCreate(request CreateRequest) error {
	if request.Name == "" {
		return fmt.Errorf("%w: name is empty", backend.ErrInvalid)
	}
	if err := checkRange(request.Range); err != nil {
		return err
	}
	if err := g.CheckCapabilities(request.Capabilities); err != nil {
		return err
	}
	if err := g.checkSource(request.Source); err != nil {
		return err
	}
	return g.checkParameters(request.Parameters, request.MutableParameters)
}

func (g *Guard) checkSource(source backend.Source) error {
	switch {
	case source.SnapshotID != "" && source.VolumeID != "":
		return fmt.Errorf("%w: volume_content_source names both a snapshot and a volume", backend.ErrInvalid)
	case source.SnapshotID != "" && !implements[backend.Snapshotter](g):
		return fmt.Errorf("%w: volume_content_source: %s has no snapshots", backend.ErrInvalid, g.traits.DriverName)
	case source.VolumeID != "" && !g.traits.Clone:
		return fmt.Errorf("%w: volume_content_source: %s cannot clone volumes", backend.ErrInvalid, g.traits.DriverName)
	}
	return nil
}

func (g *Guard) findOrCreate(ctx context.Context, request CreateRequest) (backend.Volume, error) {
	if !g.traits.CreateFindsName {
		if existing, found, err := g.existing(ctx, request); found || err != nil {
			return existing, err
		}
	}
	release, sourceSize, err := g.holdSource(ctx, request.Source)
	if err != nil {
		return g.instead(ctx, request, err, backend.ErrNotFound)
	}
	defer release()
	spec, err := g.resolve(request, sourceSize)
	if err != nil {
		return g.instead(ctx, request, err, backend.ErrOutOfRange)
	}
	volume, err := g.controller.CreateVolume(ctx, spec)
	if err != nil || !g.traits.CreateFindsName {
		return volume, err
	}
	return volume, g.compatible(volume, request, spec)
}

// existing finds the volume that has the request's name and judges it.
func (g *Guard) existing(ctx context.Context, request CreateRequest) (backend.Volume, bool, error) {
	volume, err := g.controller.VolumeByName(ctx, request.Name)
	if errors.Is(err, backend.ErrNotFound) {
		return backend.Volume{}, false, nil
	}
	if err != nil {
		return backend.Volume{}, false, err
	}
	return volume, true, g.compatible(volume, request, request.spec(volume.Size))
}

// instead answers a creation that cannot be, by the volume that has its name all
// the same: a repeat of one that succeeded before its source was deleted finds
// it, and a size that is not possible is not the size it has.
func (g *Guard) instead(ctx context.Context, request CreateRequest, cause, only error) (backend.Volume, error) {
	if !g.traits.CreateFindsName || !errors.Is(cause, only) {
		return backend.Volume{}, cause
	}
	volume, found, err := g.existing(ctx, request)
	if !found && err == nil {
		err = cause
	}
	return volume, err
}

// resolve decides the size.
func (g *Guard) resolve(request CreateRequest, sourceSize int64) (backend.VolumeSpec, error) {
	traits, err := g.bounds(request)
	if err != nil {
		return backend.VolumeSpec{}, err
	}
	size, err := resolveSize(request.Range, sourceSize, leastFor(request.Capabilities, traits))
	return request.spec(size), err
}

// bounds are the traits with the sizes that the parameters allow.
func (g *Guard) bounds(request CreateRequest) (backend.Traits, error) {
	sizer, ok := g.controller.(backend.Sizer)
	if !ok {
		return g.traits, nil
	}
	minimum, maximum, err := sizer.Sizes(request.Parameters, request.MutableParameters)
	traits := g.traits
	traits.MinimumSize = max(traits.MinimumSize, minimum)
	if maximum > 0 {
		traits.MaximumSize = maximum
	}
	return traits, err
}

func (r CreateRequest) spec(size int64) backend.VolumeSpec {
	return backend.VolumeSpec{
		Name: r.Name, Size: size,
		Parameters: r.Parameters, MutableParameters: r.MutableParameters,
		Source: r.Source, Capabilities: r.Capabilities,
		Topology: r.Topology, Secrets: r.Secrets, Metadata: r.Metadata,
	}
}

// holdSource keeps the source from being deleted while it is copied, and gives
// its size in bytes. Several creations may read one source at once.
func (g *Guard) holdSource(ctx context.Context, source backend.Source) (release func(), size int64, err error) {
	switch {
	case source.SnapshotID != "":
		return g.holdSnapshot(ctx, source.SnapshotID)
	case source.VolumeID != "":
		return g.holdVolume(ctx, source.VolumeID)
	}
	return func() {}, 0, nil
}

func (g *Guard) holdSnapshot(ctx context.Context, id string) (func(), int64, error) {
	snapshotter, err := feature[backend.Snapshotter](g, "snapshots")
	if err != nil {
		return nil, 0, err
	}
	unlock, err := g.share("snapshot "+id, snapshotID(id))
	if err != nil {
		return nil, 0, err
	}
	snapshot, err := snapshotter.Snapshot(ctx, id)
	if err == nil && !snapshot.Ready {
		err = fmt.Errorf("%w: source snapshot %s is not ready to use yet", backend.ErrBusy, id)
	}
	if err != nil {
		unlock()
		return nil, 0, fmt.Errorf("source snapshot: %w", err)
	}
	return unlock, snapshot.Size, nil
}

func (g *Guard) holdVolume(ctx context.Context, id string) (func(), int64, error) {
	unlock, err := g.share("volume "+id, volumeID(id))
	if err != nil {
		return nil, 0, err
	}
	volume, err := g.controller.Volume(ctx, id)
	if err != nil {
		unlock()
		return nil, 0, fmt.Errorf("source volume: %w", err)
	}
	return unlock, volume.Size, nil
}

// compatible reports whether an existing volume matches a request.
func (g *Guard) compatible(v backend.Volume, request CreateRequest, spec backend.VolumeSpec) error {
	differs := func(what string, have, want any) error {
		return fmt.Errorf("%w: volume %s has that name with %s %v, the request has %v; use another name",
			backend.ErrExists, v.ID, what, have, want)
	}
	switch {
	case !fits(v.Size, request.Range):
		return differs("capacity", v.Size, request.Range)
	case v.Source != request.Source:
		return differs("source", v.Source, request.Source)
	}
	if matcher, ok := g.controller.(backend.Matcher); ok {
		return matcher.Matches(v, spec)
	}
	switch {
	case !accessible(v.Topology, request.Topology):
		return differs("topology", v.Topology, request.Topology.Requisite)
	case !maps.Equal(v.Parameters, request.Parameters):
		return differs("parameters", v.Parameters, request.Parameters)
	case !maps.Equal(v.MutableParameters, request.MutableParameters):
		return differs("mutable_parameters", v.MutableParameters, request.MutableParameters)
	}
	return nil
}

// accessible reports whether a volume or snapshot can be reached from one of the requisite
// topologies.
func accessible(have []backend.Topology, want *backend.TopologyRequirement) bool {
	if want == nil || len(want.Requisite) == 0 || len(have) == 0 {
		return true
	}
	return slices.ContainsFunc(want.Requisite, func(requisite backend.Topology) bool {
		return slices.ContainsFunc(have, func(t backend.Topology) bool { return contains(requisite, t) })
	})
}

// contains reports whether all segments of the narrower topology are in t.
func contains(t, narrower backend.Topology) bool {
	for key, value := range narrower {
		if t[key] != value {
			return false
		}
	}
	return true
}

// DeleteVolume removes a volume; one that is not there is done.
func (g *Guard) DeleteVolume(ctx context.Context, id string) error {
	unlock, err := g.lock("volume "+id, volumeID(id))
	if err != nil {
		return err
	}
	defer unlock()
	volume, err := g.controller.Volume(ctx, id)
	switch {
	case errors.Is(err, backend.ErrNotFound) && !g.traits.LagsBehind:
		return nil
	case err == nil:
		unlockName, err := g.lock("volume "+volume.Name, volumeName(volume.Name))
		if err != nil {
			return err
		}
		defer unlockName()
	case !errors.Is(err, backend.ErrNotFound):
		return fmt.Errorf("delete volume %s: %w", id, err)
	}
	if err := g.controller.DeleteVolume(ctx, id); err != nil && !errors.Is(err, backend.ErrNotFound) {
		return fmt.Errorf("delete volume %s: %w", id, err)
	}
	return nil
}

// Volume finds a volume by ID; ErrNotFound.
func (g *Guard) Volume(ctx context.Context, id string) (backend.Volume, error) {
	return g.controller.Volume(ctx, id)
}

// Volumes lists a page of at most max volumes (0: all) and the token of the
// next one, "" when this is the last.
func (g *Guard) Volumes(ctx context.Context, token string, maximum int) ([]backend.Volume, string, error) {
	return page(token, maximum,
		func(after string, limit int) ([]backend.Volume, error) {
			return g.controller.Volumes(ctx, after, limit)
		},
		func(v backend.Volume) string { return v.ID })
}

// Expand grows a volume to the range; one that is large enough stays.
func (g *Guard) Expand(ctx context.Context, id string, r backend.SizeRange) (backend.Volume, error) {
	expander, err := feature[backend.Expander](g, "expansion")
	if err != nil {
		return backend.Volume{}, err
	}
	if err := checkRange(r); err != nil {
		return backend.Volume{}, err
	}
	if r.Required == 0 && r.Limit == 0 {
		return backend.Volume{}, fmt.Errorf("%w: capacity_range has neither required_bytes nor limit_bytes",
			backend.ErrInvalid)
	}
	unlock, err := g.lockVolume(g.traits.MergesChanges, id)
	if err != nil {
		return backend.Volume{}, err
	}
	defer unlock()
	volume, err := g.expand(ctx, expander, id, r)
	if err != nil {
		return backend.Volume{}, fmt.Errorf("expand volume %s: %w", id, err)
	}
	return volume, nil
}

func (g *Guard) expand(
	ctx context.Context, expander backend.Expander, id string, r backend.SizeRange,
) (backend.Volume, error) {
	volume, err := g.controller.Volume(ctx, id)
	if err != nil {
		return backend.Volume{}, err
	}
	if r.Limit > 0 && volume.Size > r.Limit {
		return backend.Volume{}, fmt.Errorf("%w: its %d bytes are above limit_bytes %d already, and volumes do not shrink",
			backend.ErrOutOfRange, volume.Size, r.Limit)
	}
	if volume.Size >= r.Required {
		return volume, nil
	}
	size, err := roundUp(r.Required, g.traits.AllocationUnit)
	if err != nil {
		return backend.Volume{}, err
	}
	if err := checkSize(size, r, g.traits); err != nil {
		return backend.Volume{}, err
	}
	grown, err := expander.Expand(ctx, volume, size)
	if err == nil && !fits(grown.Size, r) { // an interrupted call may have grown it more
		err = fmt.Errorf("%w: it has %d bytes now, which is not within %d to %d", backend.ErrOutOfRange, grown.Size,
			r.Required, r.Limit)
	}
	return grown, err
}

// Modify changes parameters of a volume: all of them or none. A volume that does not
// exist is ErrNotFound for every request, and a request without mutable parameters
// changes nothing (csi-sanity 5.6.0).
func (g *Guard) Modify(ctx context.Context, id string, mutable, metadata map[string]string) error {
	modifier, err := feature[backend.Modifier](g, "modification")
	if err != nil {
		return err
	}
	unlock, err := g.lockVolume(g.traits.MergesChanges, id)
	if err != nil {
		return err
	}
	defer unlock()
	volume, err := g.controller.Volume(ctx, id)
	if err == nil && len(mutable) > 0 {
		err = g.modify(ctx, modifier, volume, mutable, metadata)
	}
	if err != nil {
		return fmt.Errorf("modify volume %s: %w", id, err)
	}
	return nil
}

func (g *Guard) modify(
	ctx context.Context, modifier backend.Modifier, volume backend.Volume, mutable, metadata map[string]string,
) error {
	_, mutable, err := g.normalize(nil, mutable)
	if err != nil {
		return err
	}
	if err := g.checkParameters(volume.Parameters, mutable); err != nil {
		return err
	}
	return modifier.Modify(ctx, volume, mutable, metadata)
}
