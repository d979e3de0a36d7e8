package world

import (
	"cmp"
	"slices"
	"strconv"
)

func (w *World) snapshotView(s *snapshot) Snapshot {
	view := Snapshot{
		SnapshotID: s.ID, VolumeID: s.VolumeID, State: s.State, StatusMessage: s.Message, StartTime: s.Started, CompletionTime: s.Completed,
		Progress: w.snapshotProgress(s), OwnerID: orElse(s.Owner,
			w.account), VolumeSize: s.Size, Description: s.Description,
		Encrypted: s.Encrypted, KMSKeyID: s.KMSKey, StorageTier: "standard", OutpostARN: s.Outpost, AvailabilityZone: s.Zone,
		CompletionDurationMinutes: positive(s.Minutes), Tags: tagItems(s.Tags),
	}
	if s.Owner == "amazon" {
		view.OwnerID, view.OwnerAlias = "000000000001", "amazon"
	}
	if s.Copy {
		view.TransferType = "standard"
		if s.Minutes > 0 {
			view.TransferType = "time-based"
		}
	}
	if s.State == completed {
		bytes := int64(s.Size) << 30
		view.FullSizeInBytes = &bytes
	}
	return view
}

// tagsOfSnapshot hides the tags from filters while they lag, and those of
// other accounts always.
func (w *World) tagsOfSnapshot(s *snapshot) tags {
	if s.Owner != "" || s.TagsVisible.After(w.now()) {
		return nil
	}
	return s.Tags
}

func (w *World) snapshotFilters() filterTable[snapshot] {
	one := func(value func(*snapshot) string) func(*snapshot) []string {
		return func(s *snapshot) []string { return []string{value(s)} }
	}
	return filterTable[snapshot]{
		"snapshot-id":   one(func(s *snapshot) string { return s.ID }),
		"volume-id":     one(func(s *snapshot) string { return s.VolumeID }),
		"status":        one(func(s *snapshot) string { return s.State }),
		"owner-id":      one(func(s *snapshot) string { return orElse(s.Owner, w.account) }),
		"owner-alias":   one(func(s *snapshot) string { return w.snapshotView(s).OwnerAlias }),
		"volume-size":   one(func(s *snapshot) string { return strconv.Itoa(int(s.Size)) }),
		"start-time":    one(func(s *snapshot) string { return stamp(s.Started) }),
		"progress":      one(w.snapshotProgress),
		"encrypted":     one(func(s *snapshot) string { return strconv.FormatBool(s.Encrypted) }),
		"description":   one(func(s *snapshot) string { return s.Description }),
		"sse-type":      one(func(s *snapshot) string { return sseType(s.Encrypted) }),
		"storage-tier":  one(func(*snapshot) string { return "standard" }),
		"transfer-type": one(func(s *snapshot) string { return w.snapshotView(s).TransferType }),
	}
}

// snapshotsOf lists the snapshots that a describe is about, in order.
func (w *World) snapshotsOf(ids []string, filters []Filter, stale bool) ([]*snapshot, *Error) {
	var all []*snapshot
	var unknown []string
	for _, id := range ids {
		if refusal := checkSnapshotID(id); refusal != nil {
			return nil, refusal
		}
		if s := w.Snapshots[id]; s == nil || w.seenSnapshot(s, stale) == nil {
			unknown = append(unknown, id)
		}
	}
	if len(unknown) > 0 {
		return nil, snapshotNotFound(unknown...)
	}
	exact, restricted := exactValues(filters, "snapshot-id")
	for _, s := range w.Snapshots {
		if !selected(ids, s.ID) || (restricted && !exact[s.ID]) {
			continue
		}
		if seen := w.seenSnapshot(s, stale); seen != nil {
			all = append(all, seen)
		}
	}
	slices.SortFunc(all, func(a, b *snapshot) int { return cmp.Compare(a.Order, b.Order) })
	return all, nil
}

// DescribeSnapshots lists all snapshots that the account can use, public ones
// and those of others included, unless an owner is asked for.
func (w *World) DescribeSnapshots(r *DescribeSnapshotsRequest) (_ *DescribeSnapshotsResponse, err error) {
	defer w.read(&err)()
	if refusal := pageWithIDs(r.SnapshotIDs, r.Page, "snapshotSet"); refusal != nil {
		return nil, refusal
	}
	matches, refusal := compileFilters(r.Filters, w.snapshotFilters(), w.tagsOfSnapshot)
	if refusal != nil {
		return nil, refusal
	}
	p, refusal := w.openPage(r.Page, maxPage, []any{"snapshots", r.SnapshotIDs, r.Owners, r.RestorableBy, r.Filters})
	if refusal != nil {
		return nil, refusal
	}
	all, refusal := w.snapshotsOf(r.SnapshotIDs, r.Filters, w.stale())
	if refusal != nil {
		return nil, refusal
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	chosen, next := paginate(p, all, func(s *snapshot) int64 { return s.Order }, func(s *snapshot) bool {
		return w.owned(s, r.Owners) && w.restorable(s, r.RestorableBy) && matches(s)
	})
	answer := &DescribeSnapshotsResponse{NextToken: next}
	for _, s := range chosen {
		answer.Snapshots = append(answer.Snapshots, w.snapshotView(s))
	}
	return answer, nil
}

// owned reports whether one of the owners has the snapshot; no owner is all.
func (w *World) owned(s *snapshot, owners []string) bool {
	return len(owners) == 0 || anyOf(owners, func(o string) bool {
		return (o == "self" && s.Owner == "") || o == orElse(s.Owner, w.account)
	})
}

// restorable reports whether one of the accounts may restore a snapshot: the account
// itself every visible one, any other account a public one.
func (w *World) restorable(s *snapshot, by []string) bool {
	return len(by) == 0 || anyOf(by, func(who string) bool {
		return (who == "all" && s.Public) || who == "self" || who == w.account
	})
}
