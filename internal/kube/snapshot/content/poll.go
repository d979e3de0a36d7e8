package content

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
)

// Poll limits the interval at which the controller polls the driver until a snapshot is
// ready. It is independent of the backoff after errors: a backend that uploads for an
// hour has not failed.
type Poll struct {
	Start, Max time.Duration
}

// DefaultPoll polls every 5 s at first, and every 30 s for a snapshot that takes minutes.
func DefaultPoll() Poll { return Poll{Start: 5 * time.Second, Max: 30 * time.Second} }

// share limits the delay by polling to this fraction of the time since the snapshot was
// taken.
const share = 4

// Next returns the time until the next poll of a snapshot that was taken at the given
// time. It needs no state, so that it continues after a restart. Jitter spreads the polls
// of many snapshots.
func (p Poll) Next(taken, now time.Time) time.Duration {
	pause := min(max(now.Sub(taken)/share, p.Start), p.Max)
	return pause + rand.N(pause/10+1)
}

// Soon is the time to the next step of a content that needs another at once.
const Soon = time.Millisecond

// catchUp is the pause of a content that the cache has not reached. Waiting makes
// no request.
const catchUp = 20 * time.Millisecond

// Outcome returns the result of a step for the queue: after is the time until the next
// step if there is no error. A content that changed during the step is requeued at once;
// a deleted content is not requeued.
func Outcome(err error, after time.Duration) (time.Duration, error) {
	switch {
	case errors.Is(err, cluster.ErrGone):
		return 0, nil
	case errors.Is(err, cluster.ErrChanged):
		return Soon, nil
	case errors.Is(err, errBehind):
		return catchUp, nil
	case err != nil:
		return 0, err
	}
	return after, nil
}
