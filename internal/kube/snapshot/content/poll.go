package content

import (
	"errors"
	"math/rand/v2"
	"time"
)

// Poll is how often the driver is asked whether a snapshot is ready. It has
// nothing to do with the pauses after errors: a backend that uploads for an
// hour is not a failure.
type Poll struct {
	Start, Max time.Duration
}

// DefaultPoll asks every 5 s at first, and every 30 s of a snapshot that takes
// minutes.
func DefaultPoll() Poll { return Poll{Start: 5 * time.Second, Max: 30 * time.Second} }

// share: of the time that a snapshot has taken already, this part is added at
// most by asking late.
const share = 4

// Next is the time until the next question about a snapshot that was taken at
// the given instant. It depends on nothing remembered, so that it continues after
// a restart; a little chance keeps a mass of snapshots apart.
func (p Poll) Next(taken, now time.Time) time.Duration {
	pause := min(max(now.Sub(taken)/share, p.Start), p.Max)
	return pause + rand.N(pause/10+1)
}

// Soon is the time to the next step of a content that needs another at once.
const Soon = time.Millisecond

// catchUp is the pause of a content that the cache has not reached. Waiting makes
// no request.
const catchUp = 20 * time.Millisecond

// Outcome is what a queue does after a step: after is the time until the next
// one when nothing failed. A content that changed during the step is queued
// again at once; one that was deleted needs nothing.
func Outcome(err error, after time.Duration) (time.Duration, error) {
	switch {
	case errors.Is(err, ErrGone):
		return 0, nil
	case errors.Is(err, ErrChanged):
		return Soon, nil
	case errors.Is(err, errBehind):
		return catchUp, nil
	case err != nil:
		return 0, err
	}
	return after, nil
}
