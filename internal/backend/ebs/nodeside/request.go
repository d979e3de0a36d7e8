package nodeside

import (
	"fmt"
	"strconv"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/nodelocal"
)

// keyPartition is the key of the volume context for the number of a partition; 0 or no value
// means the disk.
const keyPartition = "partition"

// request is a checked request for a device.
type request struct {
	volumeID, serial string
	partition        int
	devicePath       string
	readOnly         bool
	format           backend.FormatOptions
}

func newRequest(r backend.DeviceRequest, legacyXFS bool) (request, error) {
	serial, err := serialOf(r.VolumeID)
	if err != nil {
		return request{}, err
	}
	w := request{volumeID: r.VolumeID, serial: serial, devicePath: r.PublishContext[nodelocal.DevicePathKey],
		readOnly: r.ReadOnly}
	if w.partition, err = partitionOf(r.VolumeContext); err != nil {
		return request{}, err
	}
	if w.format, err = formatOptions(r.VolumeContext); err != nil {
		return request{}, err
	}
	w.format.LegacyXFS = legacyXFS
	return w, nil
}

// maxPartition is the number of partitions in a GPT of the usual size.
const maxPartition = 128

func partitionOf(volumeContext map[string]string) (int, error) {
	text, given := volumeContext[keyPartition]
	if !given || text == "" {
		return 0, nil
	}
	index, err := strconv.Atoi(text)
	if err != nil || index < 0 || index > maxPartition {
		return 0, fmt.Errorf("%w: volume attribute %s is %.32q; it must be the number of a partition, 1 to %d, or 0 for the whole disk",
			backend.ErrInvalid, keyPartition, text, maxPartition)
	}
	return index, nil
}
