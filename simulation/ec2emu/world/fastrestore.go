package world

import (
	"cmp"
	"slices"
	"time"
)

const (
	maxRestoreSize = 16 << 10 // GiB
	maxCredits     = 10
)

// EnableFastSnapshotRestores begins fast restore of snapshots in zones. The answer is a
// success that includes the failures.
func (w *World) EnableFastSnapshotRestores(
	r *EnableFastSnapshotRestoresRequest,
) (_ *EnableFastSnapshotRestoresResponse, err error) {
	w.begin()
	defer w.end(&err)
	outcome, refusal := w.eachRestore(r.SourceSnapshotIDs, r.AvailabilityZones, r.AvailabilityZoneIDs, r.DryRun,
		w.enableRestore)
	if refusal != nil {
		return nil, refusal
	}
	return &EnableFastSnapshotRestoresResponse{*outcome}, nil
}

// DisableFastSnapshotRestores ends fast restore of snapshots in zones.
func (w *World) DisableFastSnapshotRestores(
	r *DisableFastSnapshotRestoresRequest,
) (_ *DisableFastSnapshotRestoresResponse, err error) {
	w.begin()
	defer w.end(&err)
	outcome, refusal := w.eachRestore(r.SourceSnapshotIDs, r.AvailabilityZones, r.AvailabilityZoneIDs, r.DryRun,
		w.disableRestore)
	if refusal != nil {
		return nil, refusal
	}
	return &DisableFastSnapshotRestoresResponse{*outcome}, nil
}

// eachRestore calls do for each snapshot in each zone.
func (w *World) eachRestore(
	snapshots, zones, zoneIDs []string, dry bool, do func(id, zone string) (*fastRestore, *Error),
) (*FastRestoreOutcome, *Error) {
	switch {
	case len(snapshots) == 0:
		return nil, missing("sourceSnapshotIds")
	case len(zones) > 0 && len(zoneIDs) > 0:
		return nil, combination("The parameters availabilityZone and availabilityZoneId cannot be used together.")
	case len(zones)+len(zoneIDs) == 0:
		return nil, missing("availabilityZones")
	}
	for _, id := range snapshots {
		if refusal := checkSnapshotID(id); refusal != nil {
			return nil, refusal
		}
	}
	if dry {
		return nil, dryRunPassed()
	}
	outcome := &FastRestoreOutcome{}
	for _, id := range snapshots {
		failure := FastRestoreFailure{SnapshotID: id}
		for n := range max(len(zones), len(zoneIDs)) {
			zone, zoneID := at(zones, n), at(zoneIDs, n)
			name, refusal := w.pickZone(zone, zoneID)
			var f *fastRestore
			if refusal == nil {
				f, refusal = do(id, name)
			}
			if refusal != nil {
				failure.Errors = append(failure.Errors, FastRestoreZoneError{
					AvailabilityZone: orElse(name,
						zone), AvailabilityZoneID: zoneID, Error: FastStateError{refusal.Code, refusal.Message},
				})
				continue
			}
			outcome.Successful = append(outcome.Successful, w.restoreView(f))
		}
		if len(failure.Errors) > 0 {
			outcome.Unsuccessful = append(outcome.Unsuccessful, failure)
		}
	}
	return outcome, nil
}

func at(list []string, n int) string {
	if n < len(list) {
		return list[n]
	}
	return ""
}

func (w *World) enableRestore(id, zone string) (*fastRestore, *Error) {
	s, refusal := w.ownSnapshot(id)
	if refusal != nil {
		return nil, refusal
	}
	if f := w.FastRestores[id+" "+zone]; f != nil && f.State != disabling && f.State != disabled {
		return f, nil
	}
	using := map[string]bool{id: true}
	for _, f := range w.FastRestores {
		if f.State != disabled {
			using[f.SnapshotID] = true
		}
	}
	most := limitOr(w.knobs.Snapshots.FastRestore, 5)
	switch {
	case s.State != completed && s.State != pending:
		return nil, incorrectState("Snapshot is in invalid state - %s", s.State)
	case s.Size > maxRestoreSize:
		return nil, invalid("The snapshot '%s' has %d GiB; fast snapshot restore takes %d at most.",
			id, s.Size, maxRestoreSize)
	case most >= 0 && len(using) > most:
		return nil, refuse("FastSnapshotRestoreLimitExceeded",
			"The limit of %d snapshots with fast snapshot restore is reached.", most)
	case w.faultHits(FastRestoreFails, &volume{ID: s.VolumeID, Tags: s.Tags}, ""):
		return nil, refuse("InternalError", "Fast snapshot restore could not be enabled for the snapshot '%s'.", id)
	}
	f := &fastRestore{SnapshotID: id, Zone: zone, State: enabling, Reason: "Client.UserInitiated",
		Order: w.order(), Enabling: w.now(), Refilled: w.now()}
	w.FastRestores[f.key()] = f
	f.Gen, _ = w.schedule(w.knobs.Times.Enable, event{Kind: restoreMoves, ID: f.key()})
	return f, nil
}

func (f *fastRestore) key() string { return f.SnapshotID + " " + f.Zone }

func (w *World) disableRestore(id, zone string) (*fastRestore, *Error) {
	f := w.FastRestores[id+" "+zone]
	if f == nil || f.State == disabled {
		return nil, refuse("InvalidFastSnapshotRestore.NotFound",
			"Fast snapshot restore is not enabled for the snapshot '%s' in %s.", id, zone)
	}
	if f.State != disabling {
		w.beginDisable(f)
	}
	return f, nil
}

func (w *World) beginDisable(f *fastRestore) {
	f.State, f.Disabling = disabling, w.now()
	f.Gen, _ = w.schedule(w.knobs.Times.Enable, event{Kind: restoreMoves, ID: f.key()})
}

// moveRestore takes the next step: enabling, optimizing, enabled; disabling, disabled.
func (w *World) moveRestore(f *fastRestore) {
	now := w.now()
	switch f.State {
	case enabling:
		f.State, f.Optimizing, f.Reason = optimizing, now, "Client.UserInitiated - Lifecycle state transition"
		f.Gen, _ = w.schedule(w.knobs.Times.Warm, event{Kind: restoreMoves, ID: f.key()})
	case optimizing:
		f.State, f.Enabled, f.Refilled = enabled, now, now
	case disabling:
		f.State, f.Disabled = disabled, now
		if w.Snapshots[f.SnapshotID] == nil {
			delete(w.FastRestores, f.key())
		}
	}
}

// dropRestores ends fast restore of a snapshot that is deleted.
func (w *World) dropRestores(snapshotID string) {
	for _, f := range w.FastRestores {
		if f.SnapshotID == snapshotID && f.State != disabling && f.State != disabled {
			w.beginDisable(f)
		}
	}
}

// spendRestoreCredit reports whether a volume gets its data at once. The bucket
// starts empty and holds MAX(1, MIN(10, 1024 ÷ GiB)) credits.
func (w *World) spendRestoreCredit(v *volume) bool {
	f := w.FastRestores[v.SnapshotID+" "+v.Zone]
	s := w.Snapshots[v.SnapshotID]
	if f == nil || s == nil || f.State != enabled {
		return false
	}
	perHour := min(maxCredits, 1024/float64(max(s.Size, 1)))
	f.Credits = min(max(1, perHour), f.Credits+perHour*w.now().Sub(f.Refilled).Hours())
	f.Refilled = w.now()
	if f.Credits < 1 {
		return false
	}
	f.Credits--
	return true
}

func (w *World) restoreView(f *fastRestore) FastRestore {
	return FastRestore{
		SnapshotID: f.SnapshotID, AvailabilityZone: f.Zone, AvailabilityZoneID: w.zoneID(f.Zone), State: f.State, StateTransitionReason: f.Reason,
		OwnerID: w.account, EnablingTime: f.Enabling, OptimizingTime: f.Optimizing, EnabledTime: f.Enabled, DisablingTime: f.Disabling, DisabledTime: f.Disabled,
	}
}

// DescribeFastSnapshotRestores lists the states of fast restore.
func (w *World) DescribeFastSnapshotRestores(
	r *DescribeFastSnapshotRestoresRequest,
) (_ *DescribeFastSnapshotRestoresResponse, err error) {
	defer w.read(&err)()
	text := func(value func(*fastRestore) string) func(*fastRestore) []string {
		return func(f *fastRestore) []string { return []string{value(f)} }
	}
	matches, refusal := compileFilters(r.Filters, filterTable[fastRestore]{
		"availability-zone":    text(func(f *fastRestore) string { return f.Zone }),
		"availability-zone-id": text(func(f *fastRestore) string { return w.zoneID(f.Zone) }),
		"owner-id":             text(func(*fastRestore) string { return w.account }),
		"snapshot-id":          text(func(f *fastRestore) string { return f.SnapshotID }),
		"state":                text(func(f *fastRestore) string { return f.State }),
	}, nil)
	if refusal != nil {
		return nil, refusal
	}
	p, refusal := w.openPage(r.Page, 200, []any{"restores", r.Filters})
	if refusal != nil {
		return nil, refusal
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	var all []*fastRestore
	for _, f := range w.FastRestores {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *fastRestore) int { return cmp.Compare(a.Order, b.Order) })
	chosen, next := paginate(p, all, func(f *fastRestore) int64 { return f.Order }, matches)
	answer := &DescribeFastSnapshotRestoresResponse{NextToken: next}
	for _, f := range chosen {
		answer.Restores = append(answer.Restores, w.restoreView(f))
	}
	return answer, nil
}

// remaining is the time until another time, 0 if that has passed.
func (w *World) remaining(until time.Time) time.Duration { return max(until.Sub(w.now()), 0) }
