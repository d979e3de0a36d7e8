package status

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/why"
)

// Source is a host or a cluster.
type Source interface {
	why.Reader
	// Name is such as "machine web1".
	Name() string
	// HasJournal reports whether steps come from a journal. Otherwise they are read from
	// events and timestamps.
	HasJournal() bool
	// kinds are those that Follow reads.
	kinds() []string
	// follow keeps the mirror current until the context ends.
	follow(ctx context.Context, into *Mirror)
}

// linger is how long a mirror is kept current after the last reader left: a person goes
// from page to page.
const linger = 30 * time.Second

// Live keeps a mirror of a source while it is in use, and costs nothing otherwise.
type Live struct {
	source Source
	linger time.Duration

	mu      sync.Mutex
	users   int
	current *Mirror
	stop    context.CancelFunc
	timer   *time.Timer
	group   sync.WaitGroup
}

// NewLive makes a Live. Close it.
func NewLive(source Source) *Live { return &Live{source: source, linger: linger} }

// errClosed means that the process ends.
var errClosed = errors.New("the status page ends")

// Use returns the mirror, complete, for use until release. It waits until every kind was
// read.
func (l *Live) Use(ctx context.Context) (view View, release func(), err error) {
	mirror, err := l.acquire() //nolint:contextcheck // the mirror outlives the request
	if err != nil {
		return View{}, nil, err
	}
	for {
		changed := mirror.Changed()
		if mirror.ready(l.source.kinds()) {
			return View{mirror: mirror, source: l.source}, sync.OnceFunc(l.release), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			l.release()
			return View{}, nil, fmt.Errorf("read the objects of %s: %w", l.source.Name(), ctx.Err())
		}
	}
}

func (l *Live) acquire() (*Mirror, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users < 0 {
		return nil, errClosed
	}
	l.users++
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if l.current == nil {
		mirror := newMirror()
		ctx, cancel := context.WithCancel(context.Background())
		l.current, l.stop = mirror, cancel
		l.group.Go(func() { l.source.follow(ctx, mirror) })
	}
	return l.current, nil
}

func (l *Live) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users < 0 {
		return
	}
	if l.users--; l.users > 0 {
		return
	}
	l.timer = time.AfterFunc(l.linger, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.users == 0 {
			l.end()
		}
	})
}

// end stops the mirror. The caller has locked.
func (l *Live) end() {
	if l.current != nil {
		l.stop()
		l.current = nil
	}
}

// Close ends the mirror and waits for its watches.
func (l *Live) Close() {
	l.mu.Lock()
	l.users = -1
	if l.timer != nil {
		l.timer.Stop()
	}
	l.end()
	l.mu.Unlock()
	l.group.Wait()
}

// View is a mirror with its source.
type View struct {
	mirror *Mirror
	source Source
}

// Changed returns a channel that is closed after the next change.
func (v View) Changed() <-chan struct{} { return v.mirror.Changed() }
