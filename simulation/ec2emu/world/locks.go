package world

import (
	"time"
)

// States of a lock (EC2 API, LockState).
const (
	governance = "governance"
	compliance = "compliance"
	coolingOff = "compliance-cooloff"
	expired    = "expired"
)

const maxLockDays, maxCoolOff = 36500, 72 // days, hours

// lockState follows from the time.
func (w *World) lockState(l *lock) string {
	switch now := w.now(); {
	case !l.Expires.After(now):
		return expired
	case l.Mode == governance:
		return governance
	case l.CoolOff.After(now):
		return coolingOff
	}
	return compliance
}

// locked reports whether the snapshot cannot be deleted.
func (w *World) locked(s *snapshot) bool { return s.Lock != nil && w.lockState(s.Lock) != expired }

// LockSnapshot locks a snapshot, or changes its lock if that is allowed.
func (w *World) LockSnapshot(r *LockSnapshotRequest) (_ *LockSnapshotResponse, err error) {
	w.begin()
	defer w.end(&err)
	s, refusal := w.ownSnapshot(r.SnapshotID)
	if refusal != nil {
		return nil, refusal
	}
	l, refusal := w.planLock(r)
	if refusal != nil {
		return nil, refusal
	}
	if refusal := w.mayLock(s, l); refusal != nil {
		return nil, refusal
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	w.touchSnapshot(s)
	if s.Lock != nil && w.lockState(s.Lock) == compliance {
		l.Created, l.CoolOff, l.CoolOffTime = s.Lock.Created, s.Lock.CoolOff, s.Lock.CoolOffTime
	}
	s.Lock = l
	return &LockSnapshotResponse{w.lockView(s)}, nil
}

func (w *World) ownSnapshot(id string) (*snapshot, *Error) {
	s, refusal := w.findSnapshot(id)
	if refusal == nil && s.Owner != "" {
		refusal = refuse("UnauthorizedOperation", "You are not the owner of the snapshot '%s'.", s.ID).withStatus(403)
	}
	return s, refusal
}

// planLock checks the values of a lock.
func (w *World) planLock(r *LockSnapshotRequest) (*lock, *Error) {
	now := w.now()
	l := &lock{Mode: r.LockMode, Created: now, Start: now}
	switch {
	case r.LockMode == "":
		return nil, missing("lockMode")
	case r.LockMode != governance && r.LockMode != compliance:
		return nil, invalid("Value (%s) for parameter lockMode is invalid. Expecting governance or compliance.",
			r.LockMode)
	case r.LockDuration != nil && r.ExpirationDate != nil:
		return nil, combination("The parameters lockDuration and expirationDate cannot be used together.")
	case r.LockDuration == nil && r.ExpirationDate == nil:
		return nil, missing("lockDuration or expirationDate")
	case r.LockDuration != nil && (*r.LockDuration < 1 || *r.LockDuration > maxLockDays):
		return nil, invalid("Value ( %d ) for parameter lockDuration is invalid. Expecting a value from 1 to %d.",
			*r.LockDuration, maxLockDays)
	case r.ExpirationDate != nil && r.ExpirationDate.Before(now.Add(24*time.Hour)):
		return nil, invalid("The expiration date must be at least one day from now.")
	case r.CoolOffPeriod != nil && r.LockMode == governance:
		return nil, combination("The parameter coolOffPeriod is not supported in governance mode.")
	case r.CoolOffPeriod != nil && (*r.CoolOffPeriod < 1 || *r.CoolOffPeriod > maxCoolOff):
		return nil, invalid("Value ( %d ) for parameter coolOffPeriod is invalid. Expecting a value from 1 to %d.",
			*r.CoolOffPeriod, maxCoolOff)
	}
	if r.LockDuration != nil {
		l.Days = *r.LockDuration
		l.Expires = now.AddDate(0, 0, int(l.Days))
	} else {
		l.Expires = r.ExpirationDate.UTC()
	}
	if r.CoolOffPeriod != nil {
		l.CoolOffTime = *r.CoolOffPeriod
		l.CoolOff = now.Add(time.Duration(l.CoolOffTime) * time.Hour)
	}
	return l, nil
}

// mayLock rejects a change of a compliance lock other than an extension after its
// cool-off period.
func (w *World) mayLock(s *snapshot, l *lock) *Error {
	if s.Lock == nil || w.lockState(s.Lock) != compliance {
		return nil
	}
	if l.Mode != compliance || l.Expires.Before(s.Lock.Expires) || l.CoolOffTime > 0 {
		return refuse("OperationNotPermitted",
			"The snapshot '%s' is locked in compliance mode; its lock can only be extended.", s.ID)
	}
	return nil
}

// UnlockSnapshot removes a lock in governance mode, or one in compliance mode during its
// cool-off period.
func (w *World) UnlockSnapshot(r *UnlockSnapshotRequest) (_ *UnlockSnapshotResponse, err error) {
	w.begin()
	defer w.end(&err)
	s, refusal := w.ownSnapshot(r.SnapshotID)
	if refusal != nil {
		return nil, refusal
	}
	switch {
	case s.Lock == nil:
		return nil, refuse("SnapshotNotLocked", "The snapshot '%s' is not locked.", s.ID)
	case w.lockState(s.Lock) == compliance:
		return nil, refuse("OperationNotPermitted",
			"The snapshot '%s' is locked in compliance mode and cannot be unlocked.", s.ID)
	case r.DryRun:
		return nil, dryRunPassed()
	}
	w.touchSnapshot(s)
	s.Lock = nil
	return &UnlockSnapshotResponse{s.ID}, nil
}

func (w *World) lockView(s *snapshot) SnapshotLock {
	l := s.Lock
	return SnapshotLock{
		SnapshotID: s.ID, LockState: w.lockState(l), LockDuration: positive(l.Days), CoolOffPeriod: positive(l.CoolOffTime),
		CoolOffPeriodExpiresOn: l.CoolOff, LockCreatedOn: l.Created, LockExpiresOn: l.Expires, LockDurationStartTime: l.Start,
	}
}

// DescribeLockedSnapshots lists locks. Unlike other describes it knows no
// snapshot that has none, also by ID.
func (w *World) DescribeLockedSnapshots(
	r *DescribeLockedSnapshotsRequest,
) (_ *DescribeLockedSnapshotsResponse, err error) {
	defer w.read(&err)()
	if refusal := pageWithIDs(r.SnapshotIDs, r.Page, "snapshotSet"); refusal != nil {
		return nil, refusal
	}
	stateOf := func(s *snapshot) []string { return []string{w.lockState(s.Lock)} }
	matches, refusal := compileFilters(r.Filters, filterTable[snapshot]{"lock-state": stateOf}, nil)
	if refusal != nil {
		return nil, refusal
	}
	p, refusal := w.openPage(r.Page, maxPage, []any{"locks", r.SnapshotIDs, r.Filters})
	if refusal != nil {
		return nil, refusal
	}
	all, refusal := w.snapshotsOf(r.SnapshotIDs, nil, w.stale())
	if refusal != nil {
		return nil, refusal
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	held := func(s *snapshot) bool { return s.Lock != nil && s.Owner == "" && matches(s) }
	chosen, next := paginate(p, all, func(s *snapshot) int64 { return s.Order }, held)
	answer := &DescribeLockedSnapshotsResponse{NextToken: next}
	for _, s := range chosen {
		answer.Snapshots = append(answer.Snapshots, LockedSnapshot{w.lockView(s), w.account})
	}
	return answer, nil
}
