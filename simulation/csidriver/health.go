package csidriver

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Health is how the driver reports the health of volumes. The zero value
// reports every volume healthy.
type Health struct {
	// PageSize is how many volumes a page of ControllerListVolumeHealth has at
	// most; with 0 only the request limits it.
	PageSize int
	// Twice repeats each page's last volume at the end of the next page, as
	// happens while volumes come and go.
	Twice bool
	// LoseTokens is how many page tokens are refused from now on.
	LoseTokens int
	// Answer, when set, is every answer of ControllerGetVolumeHealth, true or not.
	Answer *csi.ControllerGetVolumeHealthResponse

	conditions map[string][]*csi.VolumeHealth_VolumeHealthEntry
}

// ReportHealth adds the capabilities for health to the driver: with list, all
// volumes at once and one by one, which CSI requires then; else one by one.
func (d *Driver) ReportHealth(list bool) {
	d.Controller = append(d.Controller, csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH)
	if list {
		d.Controller = append(d.Controller, csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH)
	}
}

// SetHealth sets the reported health of a volume; without conditions it is healthy.
func (d *Driver) SetHealth(volume string, entries ...*csi.VolumeHealth_VolumeHealthEntry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Health.conditions == nil {
		d.Health.conditions = map[string][]*csi.VolumeHealth_VolumeHealthEntry{}
	}
	d.Health.conditions[volume] = entries
	if len(entries) == 0 {
		delete(d.Health.conditions, volume)
	}
}

// Problem is an entry for SetHealth.
func Problem(kind csi.VolumeHealthErrorType, reason, message string) *csi.VolumeHealth_VolumeHealthEntry {
	return &csi.VolumeHealth_VolumeHealthEntry{Status: kind, Reason: reason, Message: message}
}

// ControllerListVolumeHealth is the RPC: the volumes that are not well, by ID.
func (d *Driver) ControllerListVolumeHealth(
	_ context.Context, request *csi.ControllerListVolumeHealthRequest,
) (*csi.ControllerListVolumeHealthResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	after, ours := strings.CutPrefix(request.GetStartingToken(), tokenPrefix)
	if request.GetStartingToken() != "" && (!ours || d.Health.LoseTokens > 0) {
		d.Health.LoseTokens--
		return nil, status.Errorf(codes.Aborted, "starting_token %q is not known", request.GetStartingToken())
	}
	ids := slices.DeleteFunc(slices.Sorted(maps.Keys(d.Health.conditions)), func(id string) bool { return ours && id <= after })
	answer := &csi.ControllerListVolumeHealthResponse{}
	if size := d.Health.page(int(request.GetMaxEntries())); size > 0 && len(ids) > size {
		ids = ids[:size]
		answer.NextToken = tokenPrefix + ids[size-1]
	}
	if d.Health.Twice && ours {
		ids = append(ids, after)
	}
	for _, id := range ids {
		answer.Entries = append(answer.Entries, &csi.VolumeHealth{VolumeId: id, HealthStatuses: d.Health.conditions[id]})
	}
	return answer, nil
}

func (h Health) page(asked int) int {
	if h.PageSize > 0 && (asked == 0 || asked > h.PageSize) {
		return h.PageSize
	}
	return asked
}

// ControllerGetVolumeHealth is the RPC. It knows every volume.
func (d *Driver) ControllerGetVolumeHealth(
	_ context.Context, request *csi.ControllerGetVolumeHealthRequest,
) (*csi.ControllerGetVolumeHealthResponse, error) {
	if request.GetVolumeId() == "" {
		return nil, status.Error(codes.InvalidArgument, "volume_id is required")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Health.Answer != nil {
		return d.Health.Answer, nil
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: &csi.VolumeHealth{
		VolumeId: request.GetVolumeId(), HealthStatuses: d.Health.conditions[request.GetVolumeId()],
	}}, nil
}
