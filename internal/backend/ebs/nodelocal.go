package ebs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/nodelocal"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/tags"
)

// attachNodeLocal returns the publish context of a node-local volume: a PersistentVolume
// whose handle names a device in place of a volume. It is, on each instance, the volume that
// the instance has under that name, as a rule from its launch template. It attaches nothing.
//
// Errors: ErrInvalid (handle), ErrNotFound (instance, or nothing has the device name),
// ErrPrecondition (not enabled, or the volume must not be shared), ErrBusy (not attached yet).
func (c *Controller) attachNodeLocal(ctx context.Context, handle, nodeID string) (map[string]string, error) {
	device, ok := nodelocal.Device(handle)
	if !ok {
		return nil, fmt.Errorf("%w: the handle of a node-local volume is like local-ebs://dev/sdf, not %.64q",
			backend.ErrInvalid, handle)
	}
	if !c.options.NodeLocal {
		return nil, fmt.Errorf("%w: node-local volumes are off; start the controller with --enable-node-local-volumes",
			backend.ErrPrecondition)
	}
	instance, err := c.cloud.Instance(ctx, nodeID)
	if err != nil {
		return nil, err
	}
	device = "/dev/" + device
	id, err := deviceOfInstance(instance, device)
	if err != nil {
		return nil, err
	}
	// A driver uses device names like this one for volumes of claims.
	v, err := c.cloud.Volume(ctx, id)
	if err != nil {
		return nil, err
	}
	if name := cmp.Or(v.Tags[tags.VolumeName], v.Tags[tags.PVName]); name != "" {
		return nil, fmt.Errorf("%w: device %s of instance %s is volume %s, which was provisioned as %s; "+
			"use a device name that drivers choose last, such as /dev/sdf",
			backend.ErrPrecondition, device, instance.ID, id, name)
	}
	c.nodeLocal.add(handle, nodeID)
	return map[string]string{nodelocal.DevicePathKey: device, nodelocal.VolumeIDKey: id}, nil
}

// deviceOfInstance is the volume that an instance has under a device name.
func deviceOfInstance(instance cloud.Instance, name string) (string, error) {
	if name == instance.RootDevice {
		return "", fmt.Errorf("%w: device %s is the root device of instance %s; attach another volume for node-local use",
			backend.ErrPrecondition, name, instance.ID)
	}
	at := slices.IndexFunc(instance.Devices,
		func(d cloud.InstanceDevice) bool { return d.Name == name && d.VolumeID != "" })
	switch {
	case at < 0:
		return "", fmt.Errorf("%w: instance %s has no volume under the device name %s; "+
			"attach one, for example by its launch template",
			backend.ErrNotFound, instance.ID, name)
	case instance.Devices[at].State != cloud.Attached:
		return "", fmt.Errorf("%w: volume %s, device %s of instance %s, is %s", backend.ErrBusy,
			instance.Devices[at].VolumeID, name, instance.ID, instance.Devices[at].State)
	}
	return instance.Devices[at].VolumeID, nil
}

// nodeLocals are the node-local volumes that this process has published, by handle and
// instance. ListVolumes shows them, for the reason of requestedVolumes.
type nodeLocals struct {
	mu        sync.Mutex
	instances map[string][]string
}

func (n *nodeLocals) add(handle, instance string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.instances == nil {
		n.instances = map[string][]string{}
	}
	if !slices.Contains(n.instances[handle], instance) {
		n.instances[handle] = append(n.instances[handle], instance)
	}
}

// remove ends the publication on an instance; "" means on all.
func (n *nodeLocals) remove(handle, instance string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.instances[handle] = slices.DeleteFunc(n.instances[handle],
		func(one string) bool { return one == instance || instance == "" })
	if len(n.instances[handle]) == 0 {
		delete(n.instances, handle)
	}
}

// listed are the volumes as a listing shows them.
func (n *nodeLocals) listed() []cloud.Volume {
	n.mu.Lock()
	defer n.mu.Unlock()
	var volumes []cloud.Volume
	for handle, instances := range n.instances {
		v := cloud.Volume{ID: handle}
		for _, instance := range instances {
			v.Attachments = append(v.Attachments, cloud.Attachment{InstanceID: instance, State: cloud.Attached})
		}
		volumes = append(volumes, v)
	}
	return volumes
}

// notAVolume is the error for an ID that EC2 would refuse as malformed.
func notAVolume(id string) error {
	if nodelocal.Is(id) {
		return fmt.Errorf("%w: %.64q is node-local, which has no size, snapshots or attributes of its own; "+
			"use the volume of each instance",
			backend.ErrNotFound, id)
	}
	return fmt.Errorf("%w: %q is not an EBS volume ID (vol- and 8 or 17 hexadecimal digits)", backend.ErrNotFound, id)
}
