package ebs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
)

// recoveries are the RPCs of the controller that change something.
func recoveries() []recovery {
	one := backend.Capability{Mode: backend.SingleNodeWriter}
	nothing := func(*stage, process, *objects) {}
	return []recovery{
		{
			name: "create", prepare: nothing, through: []string{"CreateVolume", "DescribeVolumes"},
			do: func(ctx context.Context, p process, on *objects) error { return on.create(ctx, p, creation("pvc-1")) },
		},
		{
			name: "clone", prepare: withVolume, through: []string{"CopyVolumes"},
			do: func(ctx context.Context, p process, on *objects) error {
				request := creation("clone")
				request.Source.VolumeID = on.volume
				return (&objects{}).create(ctx, p, request)
			},
		},
		{
			name: "restore", prepare: withSnapshot, through: []string{"CreateVolume"},
			do: func(ctx context.Context, p process, on *objects) error {
				request := creation("restored")
				request.Source.SnapshotID = on.snapshot
				return (&objects{}).create(ctx, p, request)
			},
		},
		{
			name: "attach", prepare: withVolume, through: []string{"AttachVolume"},
			do: func(ctx context.Context, p process, on *objects) error {
				published, err := p.Attach(ctx, on.volume, on.instance, backend.AttachSpec{Capability: one})
				if err == nil && published["devicePath"] != "/dev/xvdaa" {
					return errors.New("attached as " + published["devicePath"])
				}
				return err
			},
		},
		{
			name: "detach", prepare: withAttachment, through: []string{"DetachVolume"},
			do: func(ctx context.Context, p process, on *objects) error { return p.Detach(ctx, on.volume, on.instance) },
		},
		{
			name: "detach from everywhere", prepare: withAttachment, through: []string{"DetachVolume"},
			do: func(ctx context.Context, p process, on *objects) error { return p.Detach(ctx, on.volume, "") },
		},
		{
			name: "expand", prepare: withVolume, through: []string{"ModifyVolume", "DescribeVolumesModifications"},
			do: func(ctx context.Context, p process, on *objects) error { return on.expand(ctx, p, 20*gib) },
		},
		{
			name: "modify", prepare: withTaggedVolume, through: []string{"CreateTags", "DeleteTags", "ModifyVolume"},
			do: func(ctx context.Context, p process, on *objects) error {
				return p.Modify(ctx, on.volume, map[string]string{"iops": "4000", "tagSpecification_1": "team=blue", "tagDeletion_1": "old"}, nil)
			},
		},
		{
			name: "expand and modify", prepare: withVolume, through: []string{"CreateTags", "ModifyVolume"},
			do: func(ctx context.Context, p process, on *objects) error {
				modified := make(chan error, 1)
				go func() {
					modified <- retryingBusy(ctx, func() error {
						return p.Modify(ctx, on.volume, map[string]string{"iops": "4000", "tagSpecification_1": "team=blue"}, nil)
					})
				}()
				grown := retryingBusy(ctx, func() error { return on.expand(ctx, p, 20*gib) })
				return errors.Join(grown, <-modified)
			},
		},
		{
			name: "snapshot", prepare: withVolume, through: []string{"CreateSnapshot", "EnableFastSnapshotRestores", "LockSnapshot"},
			do: func(ctx context.Context, p process, on *objects) error {
				spec := snapshotOf("snap-1", on.volume)
				spec.Parameters = map[string]string{"fastSnapshotRestoreAvailabilityZones": "us-west-2a,us-west-2b", "lockMode": "governance", "lockDuration": "7"}
				return on.createSnapshot(ctx, p, spec)
			},
		},
		{
			name: "delete", prepare: withVolume, through: []string{"DeleteVolume"},
			do: func(ctx context.Context, p process, on *objects) error { return p.DeleteVolume(ctx, on.volume) },
		},
		{
			name: "delete snapshot", prepare: withSnapshot, through: []string{"DeleteSnapshot"},
			do: func(ctx context.Context, p process, on *objects) error { return p.DeleteSnapshot(ctx, on.snapshot) },
		},
	}
}

// create makes a volume; a repeat must give the same one.
func (o *objects) create(ctx context.Context, p process, r guard.CreateRequest) error {
	v, err := p.CreateVolume(ctx, r)
	if err != nil {
		return err
	}
	return same(&o.volume, v.ID)
}

// expand grows the volume; an answer must say that it is so.
func (o *objects) expand(ctx context.Context, p process, size int64) error {
	v, err := p.Expand(ctx, o.volume, backend.SizeRange{Required: size})
	if err == nil && v.Size != size {
		return fmt.Errorf("the volume has %d bytes; want %d", v.Size, size)
	}
	return err
}

// createSnapshot makes a snapshot; a repeat must give the same one.
func (o *objects) createSnapshot(ctx context.Context, p process, spec backend.SnapshotSpec) error {
	snapshot, err := p.CreateSnapshot(ctx, spec)
	if err != nil {
		return err
	}
	return same(&o.snapshot, snapshot.ID)
}

func same(known *string, id string) error {
	if *known != "" && *known != id {
		return errors.New("was " + *known + " and is " + id)
	}
	*known = id
	return nil
}

func withVolume(s *stage, p process, on *objects) {
	s.Helper()
	s.must(on.create(s.Context(), p, creation("pvc-1")))
}

func withTaggedVolume(s *stage, p process, on *objects) {
	s.Helper()
	request := creation("pvc-1")
	request.Parameters = map[string]string{"tagSpecification_1": "old=yes"}
	s.must(on.create(s.Context(), p, request))
}

func withAttachment(s *stage, p process, on *objects) {
	s.Helper()
	withVolume(s, p, on)
	_, err := p.Attach(s.Context(), on.volume, on.instance, forOneNode)
	s.must(err)
}

func withSnapshot(s *stage, p process, on *objects) {
	s.Helper()
	withVolume(s, p, on)
	s.must(on.createSnapshot(s.Context(), p, snapshotOf("snap-0", on.volume)))
}

// retryingBusy repeats a call that fails with ErrBusy, as a CO does: one of the two
// calls may join what an earlier process began before the other one starts.
func retryingBusy(ctx context.Context, call func() error) error {
	for {
		err := call()
		if !errors.Is(err, backend.ErrBusy) || ctx.Err() != nil {
			return err
		}
		time.Sleep(time.Second)
	}
}
