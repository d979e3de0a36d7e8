package lease

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lock stands between client-go's election and the Lease, and adds what the
// election lacks:
//   - The work ends before others may take the lease. client-go notices a loss
//     RetryPeriod + RenewDeadline after the last renewal, which with the sidecars'
//     times is the very moment at which the next holder begins. Here a timer,
//     which runs on the monotonic clock and so does not care for jumps of the
//     time of day, ends the work an eighth of the duration earlier.
//   - A holder that reads another's name in the Lease has lost it at once (its
//     machine slept, say), and not after the RenewDeadline.
//   - One request that hangs does not take all of the RenewDeadline.
//   - It is given back only when the work has ended, and never taken from
//     another then: client-go also gives it back, before it says anything, when it
//     could not renew it in time, and it looks at who it believes the holder to be,
//     not at who it has just read.
//
// The election calls it from one goroutine.
type lock struct {
	resourcelock.Interface
	duration, timeout time.Duration
	lose              func(why string)

	holder string // in the Lease as last read or written

	mu     sync.Mutex
	held   bool
	over   bool
	ended  bool // the work, if there was any
	expiry *time.Timer
}

// Get reads the Lease.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	record, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.holder = record.HolderIdentity
		if l.holder != l.Identity() {
			l.lost("another process has it: " + l.holder)
		}
	}
	return record, raw, err
}

// Create makes the Lease, held.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update renews or takes the Lease, or gives it back where the record has no holder.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" && (l.holder != l.Identity() || !l.hasEnded()) {
		return nil // there is nothing of ours to give back, or it is not time
	}
	return l.write(ctx, record, l.Interface.Update)
}

func (l *lock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	sent := time.Now() // others cannot have seen it earlier
	if err := write(ctx, record); err != nil {
		return err
	}
	l.holder = record.HolderIdentity
	if l.holder == l.Identity() {
		l.renewed(sent)
	}
	return nil
}

// renewed puts the end of the work off.
func (l *lock) renewed(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	l.held = true
	left := time.Until(at.Add(l.duration - l.duration/8))
	if l.expiry == nil {
		l.expiry = time.AfterFunc(left, func() { l.lost("it was not renewed in time") })
		return
	}
	l.expiry.Reset(left)
}

// lost ends the work, if it was held and was not given up.
func (l *lock) lost(why string) {
	l.mu.Lock()
	first := l.held && !l.over
	l.over = l.over || l.held
	l.mu.Unlock()
	if first {
		l.lose(why)
	}
}

func (l *lock) hasEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// stop says that the work has ended: the time is watched no more, and the lease
// may be given back.
func (l *lock) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over, l.ended = true, true
	if l.expiry != nil {
		l.expiry.Stop()
	}
}
