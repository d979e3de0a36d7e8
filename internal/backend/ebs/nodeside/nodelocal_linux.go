package nodeside

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/nodelocal"
)

// aliasSuffix is of the records of node-local volumes: which volume a handle means on this
// machine. The publish context names it, and the calls without one read the record. The
// records are hints like claims, because the kubelet stages again after a reboot.
const aliasSuffix = ".alias.json"

// volumeOf returns the ID of the volume that a handle means on this machine. It is "" for a
// node-local volume that was not opened since the machine's boot.
func (n *Node) volumeOf(handle string) (string, error) {
	device, ok := nodelocal.Device(handle)
	if !ok {
		return handle, nil
	}
	found, err := n.records.read(device, aliasSuffix)
	if found == nil || err != nil {
		return "", err
	}
	return found.Volume, nil
}

// resolve replaces the handle of a node-local volume by the volume's ID, and records it.
// ErrInvalid if the publish context has no ID, ErrPrecondition without a state directory.
func (n *Node) resolve(ctx context.Context, r backend.DeviceRequest) (backend.DeviceRequest, error) {
	device, ok := nodelocal.Device(r.VolumeID)
	if !ok {
		return r, nil
	}
	handle, id := r.VolumeID, r.PublishContext[nodelocal.VolumeIDKey]
	r.VolumeID = id
	if !volumeID.MatchString(id) {
		return r, fmt.Errorf("%w: %s of the attachment of %s is %.64q, not the ID of an EBS volume; "+
			"the controller sets it with --enable-node-local-volumes",
			backend.ErrInvalid, nodelocal.VolumeIDKey, handle, id)
	}
	if before, err := n.volumeOf(handle); err != nil || before == id {
		return r, err
	}
	// The engine could not ask for the volume's mark until now. A mark of an interrupted
	// mkfs must not outlive the use by other programs, so the volume is proven blank again.
	mark, err := n.FormatMark(ctx, id)
	if err == nil && mark.FSType != "" && !mark.Done {
		err = n.records.remove(id, markSuffix)
	}
	if err == nil {
		err = n.records.write(device, aliasSuffix, record{Volume: id}, false)
	}
	if err != nil {
		return r, err
	}
	now, err := n.volumeOf(handle)
	if err == nil && now != id {
		err = fmt.Errorf("%w: volume %s: no state directory has a record of its device", backend.ErrPrecondition, handle)
	}
	return r, err
}
