package cloud

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// watchers are the watches, one per kind of thing; they share what they learn
// and how often they look.
type watchers struct {
	watchVolumes       *watch[Volume]
	watchNamed         *watch[[]Volume]
	watchModifications *watch[Modification]
	watchSnapshots     *watch[Snapshot]
}

func (c *Client) makeWatchers(first time.Duration) {
	learn := &learner{first: first}
	volumes := &lookBudget{crowded: func() bool { return c.pace.isPaced("DescribeVolumes") }}
	changes := &lookBudget{crowded: func() bool { return c.pace.isPaced("DescribeVolumesModifications") }}
	snapshots := &lookBudget{crowded: func() bool { return c.pace.isPaced("DescribeSnapshots") }}
	c.watchers = watchers{
		watchVolumes:       newWatch(c, volumes, learn, c.describeVolumes),
		watchNamed:         newWatch(c, volumes, learn, c.describeVolumesNamed),
		watchModifications: newWatch(c, changes, learn, c.describeModifications),
		watchSnapshots:     newWatch(c, snapshots, learn, c.describeSnapshots),
	}
}

// WaitVolume looks at a volume until ready says true or fails. found is false
// when EC2 does not show the volume although it had time to. The last volume
// seen is returned with an error, too.
func (c *Client) WaitVolume(ctx context.Context, id string, e Expect, ready func(v Volume, found bool) (bool, error)) (Volume, error) {
	v, err := c.watchVolumes.until(ctx, id, e, func(v Volume, found bool) (bool, error) {
		if !found && c.memory.unsettled(id) {
			return false, nil
		}
		return ready(v.clone(), found)
	})
	return v.clone(), waitError(err, "DescribeVolumes", e, id)
}

// WaitNamed looks at the volumes of a name, oldest first, until ready says true or fails.
func (c *Client) WaitNamed(ctx context.Context, name string, e Expect, ready func(v []Volume) (bool, error)) ([]Volume, error) {
	v, err := c.watchNamed.until(ctx, name, e, func(v []Volume, _ bool) (bool, error) { return ready(cloneAll(v)) })
	return cloneAll(v), waitError(err, "DescribeVolumes", e, "named "+name)
}

// WaitModification looks at a volume's newest modification until ready says true or fails.
func (c *Client) WaitModification(ctx context.Context, volumeID string, e Expect, ready func(m Modification, found bool) (bool, error)) (Modification, error) {
	m, err := c.watchModifications.until(ctx, volumeID, e, ready)
	return m, waitError(err, "DescribeVolumesModifications", e, volumeID)
}

// WaitSnapshot looks at a snapshot until ready says true or fails.
func (c *Client) WaitSnapshot(ctx context.Context, id string, e Expect, ready func(s Snapshot, found bool) (bool, error)) (Snapshot, error) {
	s, err := c.watchSnapshots.until(ctx, id, e, func(s Snapshot, found bool) (bool, error) {
		if !found && c.memory.unsettled(id) {
			return false, nil
		}
		return ready(s, found)
	})
	return s, waitError(err, "DescribeSnapshots", e, id)
}

// waitError makes one of ours of what ended a wait; what ready said stays as it is.
func waitError(err error, action string, e Expect, id string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errClosed):
		return &Error{Action: action, resource: id, Message: errClosed.Error(), sentinel: backend.ErrUnavailable}
	case err == context.Canceled || err == context.DeadlineExceeded: //nolint:errorlint // only the wait's own, not one inside of what ready said
		message := "the time ran out while EC2 was still at it"
		if e.Kind != "" {
			message = "the time ran out while EC2 was still at it (" + e.Kind + ")"
		}
		return &Error{Action: action, resource: id, Message: message, ended: err}
	}
	return err
}

// lookBudget bounds how often is looked: some times freely, then at intervals.
type lookBudget struct {
	crowded func() bool // EC2 throttles

	mu     sync.Mutex
	spent  float64 // looks above the interval
	at     time.Time
	latest time.Time
}

// next is when the next look may be.
func (b *lookBudget) next() time.Time {
	slow := b.crowded()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recover()
	switch {
	case slow:
		return b.latest.Add(lookSlowly)
	case b.spent > looksAtOnce-1:
		return b.at.Add(time.Duration((b.spent - looksAtOnce + 1) * float64(lookEvery)))
	}
	return time.Time{}
}

// spend counts a look.
func (b *lookBudget) spend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.recover()
	b.spent++
	b.latest = b.at
}

func (b *lookBudget) recover() {
	now := time.Now()
	b.spent = max(0, b.spent-float64(now.Sub(b.at))/float64(lookEvery))
	b.at = now
}
