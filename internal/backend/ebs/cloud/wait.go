package cloud

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// watchers are the watches, one per kind of resource. Those that make the same
// describe share a budget of polls.
type watchers struct {
	watchVolumes       *watch[Volume]
	watchNamed         *watch[[]Volume]
	watchModifications *watch[Modification]
	watchSnapshots     *watch[Snapshot]
}

func (c *Client) makeWatchers(first time.Duration) {
	volumes := &pollBudget{throttled: func() bool { return c.pace.isPaced("DescribeVolumes") }}
	changes := &pollBudget{throttled: func() bool { return c.pace.isPaced("DescribeVolumesModifications") }}
	snapshots := &pollBudget{throttled: func() bool { return c.pace.isPaced("DescribeSnapshots") }}
	c.watchers = watchers{
		watchVolumes:       newWatch(c, volumes, first, c.describeVolumes),
		watchNamed:         newWatch(c, volumes, first, c.describeVolumesNamed),
		watchModifications: newWatch(c, changes, first, c.describeModifications),
		watchSnapshots:     newWatch(c, snapshots, first, c.describeSnapshots),
	}
}

// WaitVolume polls a volume until ready returns true or an error. found is false if EC2
// does not show the volume and the lag since its creation has passed. With an error,
// WaitVolume returns the last description too.
func (c *Client) WaitVolume(
	ctx context.Context, id string, e Expect, ready func(v Volume, found bool) (bool, error),
) (Volume, error) {
	v, err := c.watchVolumes.until(ctx, id, e, func(v Volume, found bool) (bool, error) {
		if !found && c.memory.mayAppear(id) {
			return false, nil
		}
		return ready(v.clone(), found)
	})
	return v.clone(), waitError(err, "DescribeVolumes", e, id)
}

// WaitNamed polls the volumes of a name, oldest first, until ready returns true or an error.
func (c *Client) WaitNamed(
	ctx context.Context, name string, e Expect, ready func(v []Volume) (bool, error),
) ([]Volume, error) {
	v, err := c.watchNamed.until(ctx, name, e, func(v []Volume, _ bool) (bool, error) { return ready(cloneAll(v)) })
	return cloneAll(v), waitError(err, "DescribeVolumes", e, "named "+name)
}

// WaitModification polls a volume's newest modification until ready returns true or an error.
func (c *Client) WaitModification(
	ctx context.Context, volumeID string, e Expect, ready func(m Modification, found bool) (bool, error),
) (Modification, error) {
	m, err := c.watchModifications.until(ctx, volumeID, e, ready)
	return m, waitError(err, "DescribeVolumesModifications", e, volumeID)
}

// WaitSnapshot polls a snapshot until ready returns true or an error.
func (c *Client) WaitSnapshot(
	ctx context.Context, id string, e Expect, ready func(s Snapshot, found bool) (bool, error),
) (Snapshot, error) {
	s, err := c.watchSnapshots.until(ctx, id, e, func(s Snapshot, found bool) (bool, error) {
		if !found && c.memory.mayAppear(id) {
			return false, nil
		}
		return ready(s, found)
	})
	return s, waitError(err, "DescribeSnapshots", e, id)
}

// waitError converts the error that ended a wait; an error of ready stays as it is.
func waitError(err error, action string, e Expect, id string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errClosed):
		return &Error{Action: action, resource: id, Message: errClosed.Error(), sentinel: backend.ErrUnavailable}
	case err == context.Canceled || err == context.DeadlineExceeded: //nolint:errorlint // the wait's own, not one inside an error of ready
		message := "the deadline passed before EC2 was done"
		if e.Kind != "" {
			message = "the deadline passed before EC2 was done (" + e.Kind + ")"
		}
		return &Error{Action: action, resource: id, Message: message, ended: err}
	}
	return err
}

// pollBudget bounds the number of polls: some may follow each other at once, the others
// keep an interval.
type pollBudget struct {
	throttled func() bool // reports whether EC2 throttles

	mu     sync.Mutex
	spent  float64 // polls above the interval
	at     time.Time
	latest time.Time
}

// next returns when the next poll may begin.
func (b *pollBudget) next() time.Time {
	slow := b.throttled()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recover()
	switch {
	case slow:
		return b.latest.Add(pollSlowly)
	case b.spent > pollsAtOnce-1:
		return b.at.Add(time.Duration((b.spent - pollsAtOnce + 1) * float64(pollEvery)))
	}
	return time.Time{}
}

// spend counts a poll.
func (b *pollBudget) spend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recover()
	b.spent++
	b.latest = b.at
}

func (b *pollBudget) recover() {
	now := time.Now()
	b.spent = max(0, b.spent-float64(now.Sub(b.at))/float64(pollEvery))
	b.at = now
}
