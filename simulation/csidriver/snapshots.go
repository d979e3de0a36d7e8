package csidriver

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Snapshots is how the driver takes snapshots. The zero value takes them at
// once, of any volume, with a size of 1 GiB. Set it before the driver serves.
type Snapshots struct {
	// UnreadyAnswers is how often a new snapshot is reported as not ready yet.
	UnreadyAnswers int
	// Size is the size of new snapshots in bytes; -1 means unknown (0 on the wire).
	Size int64
	// NoTime leaves creation_time out.
	NoTime bool
	// Topology is from where new snapshots can be restored.
	Topology []*csi.Topology
	// Answer changes the answer about a snapshot, not the snapshot, for a driver
	// that answers nonsense.
	Answer func(*csi.Snapshot)
	// Strict refuses a repetition that differs in its parameters, as the spec allows.
	Strict bool

	byName map[string]*snapshotState
}

type snapshotState struct {
	snapshot   *csi.Snapshot
	unready    int
	parameters map[string]string
}

// SnapshotTime is when all snapshots of this driver were taken.
func SnapshotTime() time.Time { return time.Date(2026, 5, 4, 3, 2, 1, 123456789, time.UTC) }

const defaultSnapshotSize = 1 << 30

// CreateSnapshot is the RPC.
func (d *Driver) CreateSnapshot(
	ctx context.Context, request *csi.CreateSnapshotRequest,
) (*csi.CreateSnapshotResponse, error) {
	if request.GetName() == "" || request.GetSourceVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "name and source_volume_id are required")
	}
	if node := instanceOf(ctx); !onNode(request.GetSourceVolumeId(), node) {
		return nil, status.Errorf(codes.NotFound, "volume %s is not on node %s", request.GetSourceVolumeId(), node)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	made, exists := d.Snapshots.byName[request.GetName()]
	if exists && made.snapshot.GetSourceVolumeId() != request.GetSourceVolumeId() {
		return nil, status.Errorf(codes.AlreadyExists, "snapshot %s is of another volume", request.GetName())
	}
	if exists && d.Snapshots.Strict && !maps.Equal(made.parameters, request.GetParameters()) {
		return nil, status.Errorf(codes.AlreadyExists, "snapshot %s exists, taken with other parameters", request.GetName())
	}
	if !exists {
		made = d.createSnapshot(request.GetName(), request.GetSourceVolumeId(), "")
		made.parameters = request.GetParameters()
	}
	return &csi.CreateSnapshotResponse{Snapshot: d.answerFor(made)}, nil
}

// createSnapshot makes a snapshot. The caller holds d.mu.
func (d *Driver) createSnapshot(name, source, group string) *snapshotState {
	snapshot := &csi.Snapshot{
		SnapshotId: "id-" + name, SourceVolumeId: source, GroupSnapshotId: group,
		CreationTime: timestamppb.New(SnapshotTime()), SizeBytes: defaultSnapshotSize,
		AccessibleTopology: d.Snapshots.Topology,
	}
	if d.Snapshots.NoTime {
		snapshot.CreationTime = nil
	}
	if d.Snapshots.Size != 0 {
		snapshot.SizeBytes = max(d.Snapshots.Size, 0)
	}
	if d.Snapshots.byName == nil {
		d.Snapshots.byName = map[string]*snapshotState{}
	}
	made := &snapshotState{snapshot: snapshot, unready: d.Snapshots.UnreadyAnswers}
	d.Snapshots.byName[name] = made
	return made
}

// answerFor returns the driver's current answer about a snapshot. The caller holds d.mu.
func (d *Driver) answerFor(made *snapshotState) *csi.Snapshot {
	answer := proto.CloneOf(made.snapshot)
	answer.ReadyToUse = made.unready <= 0
	made.unready--
	if d.Snapshots.Answer != nil {
		d.Snapshots.Answer(answer)
	}
	return answer
}

// DeleteSnapshot is the RPC.
func (d *Driver) DeleteSnapshot(
	_ context.Context, request *csi.DeleteSnapshotRequest,
) (*csi.DeleteSnapshotResponse, error) {
	if request.GetSnapshotId() == "" {
		return nil, status.Error(codes.InvalidArgument, "snapshot_id is required")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	name, made := d.findSnapshot(request.GetSnapshotId())
	if made.GetGroupSnapshotId() != "" {
		return nil, status.Errorf(codes.InvalidArgument, "snapshot %s is part of a group", request.GetSnapshotId())
	}
	delete(d.Snapshots.byName, name)
	return &csi.DeleteSnapshotResponse{}, nil
}

// SnapshotSource is the volume of a snapshot; "" if there is no such snapshot.
func (d *Driver) SnapshotSource(id string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, snapshot := d.findSnapshot(id)
	return snapshot.GetSourceVolumeId()
}

func (d *Driver) findSnapshot(id string) (name string, snapshot *csi.Snapshot) {
	for name, made := range d.Snapshots.byName {
		if made.snapshot.GetSnapshotId() == id {
			return name, made.snapshot
		}
	}
	return "", nil
}

// GetSnapshot is the RPC.
func (d *Driver) GetSnapshot(ctx context.Context, request *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name, snapshot := d.findSnapshot(request.GetSnapshotId())
	if snapshot == nil || !onNode(snapshot.GetSourceVolumeId(), instanceOf(ctx)) {
		return nil, status.Errorf(codes.NotFound, "no snapshot %s", request.GetSnapshotId())
	}
	return &csi.GetSnapshotResponse{Snapshot: d.answerFor(d.Snapshots.byName[name])}, nil
}

// ListSnapshots is the RPC: snapshots by ID, filtered, in pages.
func (d *Driver) ListSnapshots(
	ctx context.Context, request *csi.ListSnapshotsRequest,
) (*csi.ListSnapshotsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	after, _ := strings.CutPrefix(request.GetStartingToken(), tokenPrefix)
	answer := &csi.ListSnapshotsResponse{}
	for _, name := range slices.Sorted(maps.Keys(d.Snapshots.byName)) {
		made := d.Snapshots.byName[name]
		id := made.snapshot.GetSnapshotId()
		switch {
		case id <= after, !onNode(made.snapshot.GetSourceVolumeId(), instanceOf(ctx)),
			request.GetSnapshotId() != "" && request.GetSnapshotId() != id,
			request.GetSourceVolumeId() != "" && request.GetSourceVolumeId() != made.snapshot.GetSourceVolumeId():
			continue
		}
		if limit := int(request.GetMaxEntries()); limit > 0 && len(answer.GetEntries()) == limit {
			answer.NextToken = tokenPrefix + answer.GetEntries()[limit-1].GetSnapshot().GetSnapshotId()
			break
		}
		answer.Entries = append(answer.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: d.answerFor(made)})
	}
	return answer, nil
}

// SnapshotsLeft returns the IDs of the snapshots that exist, sorted.
func (d *Driver) SnapshotsLeft() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ids []string
	for _, made := range d.Snapshots.byName {
		ids = append(ids, made.snapshot.GetSnapshotId())
	}
	slices.Sort(ids)
	return ids
}

// AddSnapshot creates a snapshot without a call, as an administrator does at the storage
// system, and returns its ID.
func (d *Driver) AddSnapshot(name, source string) (id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.createSnapshot(name, source, "").snapshot.GetSnapshotId()
}
