package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/node"
)

// createdAt is when everything in the memory backend was created.
var createdAt = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// plain is a backend in memory with no optional interface.
type plain struct {
	mu        sync.Mutex
	volumes   map[string]backend.Volume
	snapshots map[string]backend.Snapshot
	groups    map[string]backend.GroupSnapshot
	problems  map[string][]backend.HealthProblem
	last      backend.VolumeSpec // of the last creation
	unwell    error              // what Probe answers
	fail      error              // what CreateVolume answers, if set
}

func newPlain() *plain {
	return &plain{
		volumes: map[string]backend.Volume{}, snapshots: map[string]backend.Snapshot{},
		groups: map[string]backend.GroupSnapshot{}, problems: map[string][]backend.HealthProblem{},
	}
}

func (p *plain) Traits() backend.Traits {
	return backend.Traits{
		DriverName: "memory.test", TopologyKeys: []string{"memory.test/node"},
		MinimumSize: 1 << 20, MaximumSize: 1 << 40, DefaultSize: 1 << 30, AllocationUnit: 1 << 20,
		AccessModes: []backend.AccessMode{backend.SingleNodeWriter, backend.SingleNodeSingleWriter, backend.SingleNodeMultiWriter},
		Filesystems: []string{"ext4"}, Block: true, Clone: true,
		Parameters: []string{"kind"}, MutableParameters: []string{"speed"}, OnlineExpansion: true,
	}
}

func (p *plain) CheckParameters(map[string]string, map[string]string) error { return nil }
func (p *plain) Probe(context.Context) error                                { return p.unwell }

func (p *plain) CreateVolume(_ context.Context, spec backend.VolumeSpec) (backend.Volume, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = spec
	if p.fail != nil {
		return backend.Volume{}, p.fail
	}
	volume := backend.Volume{
		ID: "vol-" + spec.Name, Name: spec.Name, Size: spec.Size, Parameters: spec.Parameters,
		MutableParameters: spec.MutableParameters, Source: spec.Source,
		Context: map[string]string{"made": "here"}, Topology: []backend.Topology{{"memory.test/node": "n1"}}, Created: createdAt,
	}
	p.volumes[volume.ID] = volume
	return volume, nil
}

func (p *plain) DeleteVolume(_ context.Context, id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.volumes, id)
	return nil
}

func (p *plain) Volume(_ context.Context, id string) (backend.Volume, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return find(p.volumes, id)
}

func (p *plain) VolumeByName(ctx context.Context, name string) (backend.Volume, error) {
	return p.Volume(ctx, "vol-"+name)
}

func (p *plain) Volumes(_ context.Context, after string, limit int) ([]backend.Volume, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return list(p.volumes, after, limit, func(backend.Volume) bool { return true }), nil
}

func find[T any](things map[string]T, id string) (T, error) {
	thing, has := things[id]
	if !has {
		return thing, fmt.Errorf("%w: %s", backend.ErrNotFound, id)
	}
	return thing, nil
}

func list[T any](things map[string]T, after string, limit int, matches func(T) bool) []T {
	var found []T
	for _, id := range slices.Sorted(maps.Keys(things)) {
		if id > after && matches(things[id]) && (limit == 0 || len(found) < limit) {
			found = append(found, things[id])
		}
	}
	return found
}

// memory is a plain backend with every optional interface but Attacher.
type memory struct{ *plain }

func (m memory) CheckSnapshotParameters(map[string]string) error { return nil }
func (m memory) CheckGroupParameters(map[string]string) error    { return nil }

func (m memory) CreateSnapshot(_ context.Context, spec backend.SnapshotSpec) (backend.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.snapshot(spec.Name, spec.SourceID, "", spec.Parameters), nil
}

func (m memory) snapshot(name, source, group string, parameters map[string]string) backend.Snapshot {
	snapshot := backend.Snapshot{
		ID: "snap-" + name, Name: name, SourceID: source, GroupID: group, Size: m.volumes[source].Size,
		Created: createdAt, Ready: true, Parameters: parameters,
	}
	m.snapshots[snapshot.ID] = snapshot
	return snapshot
}

func (m memory) DeleteSnapshot(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.snapshots, id)
	return nil
}

func (m memory) Snapshot(_ context.Context, id string) (backend.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return find(m.snapshots, id)
}

func (m memory) SnapshotByName(ctx context.Context, name string) (backend.Snapshot, error) {
	return m.Snapshot(ctx, "snap-"+name)
}

func (m memory) Snapshots(
	_ context.Context, f backend.SnapshotFilter, after string, limit int,
) ([]backend.Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return list(m.snapshots, after, limit, func(s backend.Snapshot) bool {
		return s.ID == cmp.Or(f.SnapshotID, s.ID) && s.SourceID == cmp.Or(f.SourceID, s.SourceID)
	}), nil
}

func (m memory) CreateGroup(_ context.Context, spec backend.GroupSnapshotSpec) (backend.GroupSnapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	group := backend.GroupSnapshot{ID: "grp-" + spec.Name, Name: spec.Name, Created: createdAt, Ready: true, Parameters: spec.Parameters}
	for _, source := range spec.SourceIDs {
		group.Snapshots = append(group.Snapshots, m.snapshot(spec.Name+"-"+source, source, group.ID, nil))
	}
	m.groups[group.ID] = group
	return group, nil
}

func (m memory) DeleteGroup(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, member := range m.groups[id].Snapshots {
		delete(m.snapshots, member.ID)
	}
	delete(m.groups, id)
	return nil
}

func (m memory) Group(_ context.Context, id string) (backend.GroupSnapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return find(m.groups, id)
}

func (m memory) GroupByName(ctx context.Context, name string) (backend.GroupSnapshot, error) {
	return m.Group(ctx, "grp-"+name)
}

func (m memory) Expand(_ context.Context, v backend.Volume, size int64) (backend.Volume, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	volume := m.volumes[v.ID]
	volume.Size = size
	m.volumes[v.ID] = volume
	return volume, nil
}

func (m memory) Modify(_ context.Context, v backend.Volume, mutable, _ map[string]string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	volume := m.volumes[v.ID]
	volume.MutableParameters = mutable
	m.volumes[v.ID] = volume
	return nil
}

func (m memory) Capacity(context.Context, map[string]string, backend.Topology) (backend.Capacity, error) {
	return backend.Capacity{Available: 5 << 30, MaximumVolumeSize: 3 << 30}, nil
}

func (m memory) VolumeHealth(ctx context.Context, id string) ([]backend.HealthProblem, error) {
	_, err := m.Volume(ctx, id)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.problems[id], err
}

// attaching is a backend whose volumes are attached.
type attaching struct{ memory }

func (a attaching) Attach(_ context.Context, volume, _ string, spec backend.AttachSpec) (map[string]string, error) {
	if _, err := find(a.volumes, volume); err != nil {
		return nil, err
	}
	return map[string]string{"device": "/dev/x", "readOnly": fmt.Sprint(spec.ReadOnly), "of": spec.Context["of"]}, nil
}

func (a attaching) Detach(context.Context, string, string) error { return nil }

// engine is a node engine that records its calls and returns configured answers.
type engine struct {
	staged    node.StageRequest
	published node.PublishRequest
	expanded  node.ExpandRequest
	unstaged  [2]string
	unwanted  [2]string
	fail      error
	problems  []backend.HealthProblem
	// entered gets each Stage, which then waits for leave or its context.
	entered chan struct{}
	leave   chan struct{}
	stuck   bool // a Stage does not notice the end of its context
}

func (e *engine) Stage(ctx context.Context, r node.StageRequest) error {
	e.staged = r
	if e.entered == nil {
		return e.fail
	}
	e.entered <- struct{}{}
	if e.stuck {
		ctx = context.WithoutCancel(ctx)
	}
	select {
	case <-e.leave:
		return e.fail
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *engine) Unstage(_ context.Context, volume, path string) error {
	e.unstaged = [2]string{volume, path}
	return e.fail
}

func (e *engine) Publish(_ context.Context, r node.PublishRequest) error {
	e.published = r
	return e.fail
}

func (e *engine) Unpublish(_ context.Context, volume, path string) error {
	e.unwanted = [2]string{volume, path}
	return e.fail
}

func (e *engine) Stats(_ context.Context, _, path, _ string) (node.Stats, error) {
	if path == "/block" {
		return node.Stats{Block: true, Bytes: node.Usage{Total: 100}}, e.fail
	}
	return node.Stats{Bytes: node.Usage{Total: 100, Used: 60, Available: 30}, Inodes: &node.Usage{Total: 10, Used: 1, Available: 9}}, e.fail
}

func (e *engine) Expand(_ context.Context, r node.ExpandRequest) (int64, error) {
	e.expanded = r
	return 7 << 30, e.fail
}

func (e *engine) Info(context.Context) (backend.NodeInfo, error) {
	return backend.NodeInfo{ID: "n1", Topology: backend.Topology{"memory.test/node": "n1"}, MaxVolumes: 16}, e.fail
}

func (e *engine) VolumeHealth(context.Context, string, string, string) ([]backend.HealthProblem, error) {
	return e.problems, e.fail
}

func (e *engine) StorageHealth(context.Context) ([]backend.HealthProblem, error) {
	return e.problems, e.fail
}

func (e *engine) Probe(context.Context) error { return e.fail }
