package world

import (
	"fmt"
	"slices"
	"time"
)

// statusRow is the status of one volume as a describe shows it.
type statusRow struct {
	order int64
	VolumeStatusItem
}

func statusFilters() filterTable[statusRow] {
	one := func(value func(*statusRow) string) func(*statusRow) []string {
		return func(s *statusRow) []string { return []string{value(s)} }
	}
	details := func(value func(StatusDetail) string) func(*statusRow) []string {
		return func(s *statusRow) []string {
			var values []string
			for _, d := range s.Status.Details {
				values = append(values, value(d))
			}
			return values
		}
	}
	events := func(value func(VolumeEvent) string) func(*statusRow) []string {
		return func(s *statusRow) []string {
			var values []string
			for _, e := range s.Events {
				values = append(values, value(e))
			}
			return values
		}
	}
	actions := func(value func(VolumeAction) string) func(*statusRow) []string {
		return func(s *statusRow) []string {
			var values []string
			for _, a := range s.Actions {
				values = append(values, value(a))
			}
			return values
		}
	}
	return filterTable[statusRow]{
		// EC2's page names no filter by ID for this action; clients use it.
		"volume-id":                    one(func(s *statusRow) string { return s.VolumeID }),
		"availability-zone":            one(func(s *statusRow) string { return s.AvailabilityZone }),
		"availability-zone-id":         one(func(s *statusRow) string { return s.AvailabilityZoneID }),
		"volume-status.status":         one(func(s *statusRow) string { return s.Status.Status }),
		"volume-status.details-name":   details(func(d StatusDetail) string { return d.Name }),
		"volume-status.details-status": details(func(d StatusDetail) string { return d.Status }),
		"event.description":            events(func(e VolumeEvent) string { return e.Description }),
		"event.event-id":               events(func(e VolumeEvent) string { return e.EventID }),
		"event.event-type":             events(func(e VolumeEvent) string { return e.EventType }),
		"event.not-before":             events(func(e VolumeEvent) string { return stamp(e.NotBefore) }),
		"event.not-after":              events(func(e VolumeEvent) string { return stamp(e.NotAfter) }),
		"action.code":                  actions(func(a VolumeAction) string { return a.Code }),
		"action.description":           actions(func(a VolumeAction) string { return a.Description }),
		"action.event-id":              actions(func(a VolumeAction) string { return a.EventID }),
	}
}

// DescribeVolumeStatus lists the checks of volumes.
func (w *World) DescribeVolumeStatus(r *DescribeVolumeStatusRequest) (_ *DescribeVolumeStatusResponse, err error) {
	defer w.read(&err)()
	if refusal := pageWithIDs(r.VolumeIDs, r.Page, "volumeSet"); refusal != nil {
		return nil, refusal
	}
	matches, refusal := compileFilters(r.Filters, statusFilters(), nil)
	if refusal != nil {
		return nil, refusal
	}
	p, refusal := w.openPage(r.Page, maxPage, []any{"status", r.VolumeIDs, r.Filters})
	if refusal != nil {
		return nil, refusal
	}
	all, refusal := w.volumesOf(r.VolumeIDs, r.Filters, w.stale())
	if refusal != nil {
		return nil, refusal
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	rows := make([]*statusRow, 0, len(all))
	for _, v := range all {
		rows = append(rows, &statusRow{v.Order, w.statusView(v)})
	}
	chosen, next := paginate(p, rows, func(s *statusRow) int64 { return s.order }, matches)
	answer := &DescribeVolumeStatusResponse{NextToken: next}
	for _, s := range chosen {
		answer.Statuses = append(answer.Statuses, s.VolumeStatusItem)
	}
	return answer, nil
}

func (w *World) statusView(v *volume) VolumeStatusItem {
	item := VolumeStatusItem{
		VolumeID: v.ID, AvailabilityZone: v.Zone, AvailabilityZoneID: w.zoneID(v.Zone), OutpostARN: v.Outpost,
		Status: VolumeStatus{Status: "ok",
			Details: []StatusDetail{{"io-enabled", "passed"}, {"io-performance", "not-applicable"}}},
	}
	if v.provisioned() {
		item.Status.Details[1].Status = "normal"
	}
	for _, a := range v.Attachments {
		item.AttachmentStatuses = append(item.AttachmentStatuses,
			AttachmentStatus{a.InstanceID, item.Status.Details[1].Status})
	}
	w.addInitialization(v, &item)
	switch {
	case v.Impaired:
		item.Status.Status, item.Status.Details[0].Status = "impaired", "failed"
		event := VolumeEvent{EventType: "potential-data-inconsistency", EventID: "evol-" + v.ID[4:],
			Description: "The volume's data may be inconsistent; I/O is disabled.", NotBefore: v.Created}
		item.Events = []VolumeEvent{event}
		item.Actions = []VolumeAction{{Code: "enable-volume-io", Description: "Enable volume I/O",
			EventID: event.EventID, EventType: event.EventType}}
	case v.State == creating:
		item.Status.Status = "insufficient-data"
	}
	return item
}

// addInitialization adds the progress of a restored volume.
func (w *World) addInitialization(v *volume, item *VolumeStatusItem) {
	if v.SnapshotID == "" && v.SourceID == "" {
		return
	}
	state, progress := "completed", int64(100)
	left := w.remaining(v.Initialized)
	if left > 0 {
		state, progress = "initializing", share(w.now(), v.Created, v.Initialized)
	}
	item.Status.Details = append(item.Status.Details, StatusDetail{"initialization-state", state})
	d := &InitializationDetails{InitializationType: "default", Progress: &progress}
	switch {
	case v.SourceID != "":
		d.InitializationType = "volume-copy"
	case v.Rate > 0:
		d.InitializationType = "provisioned-rate"
		seconds := int64(left / time.Second)
		d.EstimatedSeconds = &seconds
	}
	item.InitializationDetails = d
}

// Impair disables a volume's I/O, as EC2 does when its data may be inconsistent.
func (w *World) Impair(volumeID string, impaired bool) (err error) {
	w.begin()
	defer w.end(&err)
	v, refusal := w.findVolume(volumeID)
	if refusal != nil {
		return refusal
	}
	w.touchVolume(v)
	v.Impaired = impaired
	return nil
}

// ModifyVolumeAttribute enables the I/O of an impaired volume.
func (w *World) ModifyVolumeAttribute(r *ModifyVolumeAttributeRequest) (_ *ModifyVolumeAttributeResponse, err error) {
	w.begin()
	defer w.end(&err)
	v, refusal := w.findVolume(r.VolumeID)
	switch {
	case refusal != nil:
		return nil, refusal
	case r.AutoEnableIO == nil || r.AutoEnableIO.Value == nil:
		return nil, missing("autoEnableIO")
	case r.DryRun:
		return nil, dryRunPassed()
	}
	w.touchVolume(v)
	v.Impaired = v.Impaired && !*r.AutoEnableIO.Value
	return &ModifyVolumeAttributeResponse{Done{true}}, nil
}

// Audit lists violations of invariants: a volume on two instances that may not share it, a
// name used twice on an instance, an attachment that only the volume or only the instance
// has.
func (w *World) Audit() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var wrong []string
	for _, v := range w.Volumes {
		if len(v.Attachments) > 1 && !v.Multi {
			wrong = append(wrong, fmt.Sprintf("%s is attached to %d instances", v.ID, len(v.Attachments)))
		}
		if (len(v.Attachments) > 0) != (v.State == inUse) {
			wrong = append(wrong, fmt.Sprintf("%s is %s and has %d attachments", v.ID, v.State, len(v.Attachments)))
		}
		for _, a := range v.Attachments {
			if i := w.Instances[a.InstanceID]; i == nil || !slices.Contains(i.Volumes, v.ID) {
				wrong = append(wrong, fmt.Sprintf("%s is attached to %s, which does not have it", v.ID, a.InstanceID))
			}
		}
	}
	for _, i := range w.Instances {
		wrong = append(wrong, w.auditNames(i)...)
	}
	slices.Sort(wrong)
	return wrong
}

func (w *World) auditNames(i *instance) []string {
	var wrong []string
	names := map[string]string{}
	for _, id := range i.Volumes {
		v := w.Volumes[id]
		if v == nil || v.at(i.ID) == nil {
			wrong = append(wrong, fmt.Sprintf("%s has %s, which is not attached to it", i.ID, id))
			continue
		}
		name := v.at(i.ID).Device
		if other, twice := names[name]; twice {
			wrong = append(wrong, fmt.Sprintf("%s has %s twice: %s and %s", i.ID, name, other, id))
		}
		names[name] = id
	}
	return wrong
}
