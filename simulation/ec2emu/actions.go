package ec2emu

import (
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// action calls one action: request makes the struct for its parameters.
type action struct {
	request func() any
	call    func(*world.World, any) (any, error)
}

func bind[Request, Response any](method func(*world.World, *Request) (*Response, error)) action {
	return action{
		request: func() any { return new(Request) },
		call: func(w *world.World, request any) (any, error) {
			return method(w, request.(*Request)) //nolint:forcetypeassert // request made it
		},
	}
}

// actions are the actions of the endpoint.
func actions() map[string]action {
	return map[string]action{
		"AttachVolume":                 bind((*world.World).AttachVolume),
		"CopySnapshot":                 bind((*world.World).CopySnapshot),
		"CopyVolumes":                  bind((*world.World).CopyVolumes),
		"CreateSnapshot":               bind((*world.World).CreateSnapshot),
		"CreateSnapshots":              bind((*world.World).CreateSnapshots),
		"CreateTags":                   bind((*world.World).CreateTags),
		"CreateVolume":                 bind((*world.World).CreateVolume),
		"DeleteSnapshot":               bind((*world.World).DeleteSnapshot),
		"DeleteTags":                   bind((*world.World).DeleteTags),
		"DeleteVolume":                 bind((*world.World).DeleteVolume),
		"DescribeAvailabilityZones":    bind((*world.World).DescribeAvailabilityZones),
		"DescribeFastSnapshotRestores": bind((*world.World).DescribeFastSnapshotRestores),
		"DescribeInstanceTypes":        bind((*world.World).DescribeInstanceTypes),
		"DescribeInstances":            bind((*world.World).DescribeInstances),
		"DescribeLockedSnapshots":      bind((*world.World).DescribeLockedSnapshots),
		"DescribeSnapshots":            bind((*world.World).DescribeSnapshots),
		"DescribeTags":                 bind((*world.World).DescribeTags),
		"DescribeVolumeStatus":         bind((*world.World).DescribeVolumeStatus),
		"DescribeVolumes":              bind((*world.World).DescribeVolumes),
		"DescribeVolumesModifications": bind((*world.World).DescribeVolumesModifications),
		"DetachVolume":                 bind((*world.World).DetachVolume),
		"DisableFastSnapshotRestores":  bind((*world.World).DisableFastSnapshotRestores),
		"EnableFastSnapshotRestores":   bind((*world.World).EnableFastSnapshotRestores),
		"LockSnapshot":                 bind((*world.World).LockSnapshot),
		"ModifyVolume":                 bind((*world.World).ModifyVolume),
		"ModifyVolumeAttribute":        bind((*world.World).ModifyVolumeAttribute),
		"UnlockSnapshot":               bind((*world.World).UnlockSnapshot),
	}
}
