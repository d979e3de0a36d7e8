package ebs

import (
	"context"
	"strconv"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/metadata"
)

var _ backend.NodeLabeler = (*Controller)(nil)

// NodeLabels returns the labels that the metadata labeler of the AWS EBS CSI driver writes:
// the number of an instance's network interfaces, and that of its volumes other than the
// root volume and those of PersistentVolumes.
func (c *Controller) NodeLabels(
	ctx context.Context, providerID string, used func(volumeID string) bool,
) (map[string]string, error) {
	id, _, ok := metadata.ParseProviderID(providerID)
	if !ok {
		return nil, nil
	}
	instance, err := c.cloud.Instance(ctx, id)
	if err != nil {
		return nil, err
	}
	others := 0
	for _, d := range instance.Devices {
		if d.VolumeID != "" && d.Name != instance.RootDevice && !used(d.VolumeID) {
			others++
		}
	}
	return map[string]string{
		metadata.LabelInterfaces: strconv.Itoa(instance.Interfaces),
		metadata.LabelVolumes:    strconv.Itoa(others),
	}, nil
}
