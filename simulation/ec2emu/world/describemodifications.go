package world

import (
	"strconv"
	"strings"
)

func upper(s string) string { return strings.ToUpper(s) }

// modificationRow is a volume's most recent modification.
type modificationRow struct {
	order int64
	VolumeModification
}

func modificationFilters() filterTable[modificationRow] {
	one := func(value func(*modificationRow) string) func(*modificationRow) []string {
		return func(m *modificationRow) []string { return []string{value(m)} }
	}
	number := func(value func(*modificationRow) *int32) func(*modificationRow) []string {
		return func(m *modificationRow) []string {
			if n := value(m); n != nil {
				return []string{strconv.Itoa(int(*n))}
			}
			return nil
		}
	}
	return filterTable[modificationRow]{
		"volume-id":            one(func(m *modificationRow) string { return m.VolumeID }),
		"modification-state":   one(func(m *modificationRow) string { return m.ModificationState }),
		"original-size":        number(func(m *modificationRow) *int32 { return m.OriginalSize }),
		"target-size":          number(func(m *modificationRow) *int32 { return m.TargetSize }),
		"original-iops":        number(func(m *modificationRow) *int32 { return m.OriginalIOPS }),
		"target-iops":          number(func(m *modificationRow) *int32 { return m.TargetIOPS }),
		"original-volume-type": one(func(m *modificationRow) string { return m.OriginalVolumeType }),
		"target-volume-type":   one(func(m *modificationRow) string { return m.TargetVolumeType }),
		"start-time":           one(func(m *modificationRow) string { return stamp(m.StartTime) }),
	}
}

// DescribeVolumesModifications lists the most recent modification of each
// volume. Asked by ID, a volume that was never modified fails the call.
func (w *World) DescribeVolumesModifications(
	r *DescribeVolumesModificationsRequest,
) (_ *DescribeVolumesModificationsResponse, err error) {
	defer w.read(&err)()
	if refusal := pageWithIDs(r.VolumeIDs, r.Page, "volumeSet"); refusal != nil {
		return nil, refusal
	}
	matches, refusal := compileFilters(r.Filters, modificationFilters(), nil)
	if refusal != nil {
		return nil, refusal
	}
	p, refusal := w.openPage(r.Page, maxModifications, []any{"modifications", r.VolumeIDs, r.Filters})
	if refusal != nil {
		return nil, refusal
	}
	rows, refusal := w.modificationRows(r)
	if refusal != nil {
		return nil, refusal
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	chosen, next := paginate(p, rows, func(m *modificationRow) int64 { return m.order }, matches)
	answer := &DescribeVolumesModificationsResponse{NextToken: next}
	for _, m := range chosen {
		answer.Modifications = append(answer.Modifications, m.VolumeModification)
	}
	return answer, nil
}

func (w *World) modificationRows(r *DescribeVolumesModificationsRequest) ([]*modificationRow, *Error) {
	all, refusal := w.volumesOf(r.VolumeIDs, r.Filters, w.stale())
	if refusal != nil {
		return nil, refusal
	}
	var rows []*modificationRow
	var never []string
	for _, v := range all {
		if m := w.seenModification(v); m != nil {
			rows = append(rows, &modificationRow{v.Order, w.modificationView(v, m)})
		} else {
			never = append(never, v.ID)
		}
	}
	if len(r.VolumeIDs) > 0 && len(never) > 0 {
		return nil, refuse("InvalidVolumeModification.NotFound", "Modification for volume '%s' does not exist.",
			strings.Join(never, "', '"))
	}
	return rows, nil
}
