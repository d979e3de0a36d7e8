package claim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// CheckAnswer returns an error if the driver's answer does not fit the request. The
// caller deletes the volume then.
func CheckAnswer(request *csi.CreateVolumeRequest, volume *csi.Volume) error {
	size, id := volume.GetCapacityBytes(), volume.GetVolumeId()
	limit := request.GetCapacityRange().GetLimitBytes()
	switch {
	case id == "":
		return fmt.Errorf("the driver answered CreateVolume %q without a volume_id", request.GetName())
	case size != 0 && size < request.GetCapacityRange().GetRequiredBytes():
		return fmt.Errorf("the driver made volume %q with %d bytes, less than the %d asked for",
			id, size, request.GetCapacityRange().GetRequiredBytes())
	case limit != 0 && size > limit:
		return fmt.Errorf("the driver made volume %q with %d bytes, more than the limit of %d", id, size, limit)
	case request.GetVolumeContentSource() != nil && volume.GetContentSource() == nil:
		return fmt.Errorf("the driver made volume %q empty, not from the source asked for", id)
	}
	return nil
}

// CheckAccessibleTopology returns an error if the answer's topology does not fit the
// request: one requisite topology must not contradict one topology of the answer. The
// pod that waits for the volume could not use it anywhere else.
func CheckAccessibleTopology(request *csi.CreateVolumeRequest, volume *csi.Volume) error {
	asked, given := request.GetAccessibilityRequirements().GetRequisite(), volume.GetAccessibleTopology()
	if len(asked) == 0 || len(given) == 0 {
		return nil
	}
	for _, want := range asked {
		for _, has := range given {
			if agree(want.GetSegments(), has.GetSegments()) {
				return nil
			}
		}
	}
	return fmt.Errorf("the driver made volume %q in %s, which is none of the topologies asked for, %s",
		volume.GetVolumeId(), DescribeTopologies(given), DescribeTopologies(asked))
}

func agree(a, b map[string]string) bool {
	for key, value := range a {
		if other, has := b[key]; has && other != value {
			return false
		}
	}
	return true
}

// DescribeTopologies names topologies in messages; of many only the first few.
func DescribeTopologies(topologies []*csi.Topology) string {
	const shown = 3
	var texts []string
	for i, topology := range topologies {
		if i == shown {
			texts = append(texts, fmt.Sprintf("%d more", len(topologies)-shown))
			break
		}
		var segments []string
		for _, key := range slices.Sorted(maps.Keys(topology.GetSegments())) {
			segments = append(segments, key+"="+topology.GetSegments()[key])
		}
		texts = append(texts, "{"+strings.Join(segments, ", ")+"}")
	}
	return strings.Join(texts, " or ")
}
