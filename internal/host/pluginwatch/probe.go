package pluginwatch

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"
)

// kind is the type of a file according to its mode.
type kind int

const (
	notSocket kind = iota
	isSocket
	// maybe is a file of Windows without the mode of a socket: older Windows does
	// not set it, and whether it is one shows when it is dialled.
	maybe
)

// The kubelet's timing for files whose mode does not show their type (k/k
// pkg/kubelet/util, IsUnixDomainSocket): on Windows, the first dial of a fresh socket
// can fail.
const (
	probeEvery = time.Second
	probeLimit = 4 * time.Second
)

// classifyMode is the kind of a file of Windows by its mode.
func classifyMode(mode fs.FileMode) kind {
	switch {
	case mode&fs.ModeSocket != 0:
		return isSocket
	case mode.IsRegular(), mode&fs.ModeIrregular != 0:
		return maybe
	}
	return notSocket
}

// statOf is Stat, or where Windows cannot (a socket on 20H2) Lstat.
func statOf(stat, lstat func(string) (fs.FileInfo, error), path string) (fs.FileInfo, error) {
	info, err := stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return lstat(path)
	}
	return info, err
}

// probes dial files to find out whether they are sockets. They run concurrently with
// the watcher's loop: a probe takes up to 4 s, and other sockets come and go
// meanwhile.
type probes struct {
	dial         func(ctx context.Context, path string) error
	every, limit time.Duration
	// changed has a message when there is a new result.
	changed chan struct{}

	mu      sync.Mutex
	of      map[string]*probe
	running sync.WaitGroup
}

// probe is the probe of one file.
type probe struct {
	identity Identity
	result   kind
	cancel   context.CancelFunc
}

func newProbes(dial func(context.Context, string) error) *probes {
	return &probes{dial: dial, every: probeEvery, limit: probeLimit, changed: make(chan struct{}, 1),
		of: map[string]*probe{}}
}

// ask returns the result of a probe, or maybe while the probe runs, which ask starts.
func (p *probes) ask(ctx context.Context, path string, identity Identity) kind {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.of[path]; known != nil {
		if known.identity == identity {
			return known.result
		}
		known.cancel()
	}
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	one := &probe{identity: identity, result: maybe, cancel: cancel}
	p.of[path] = one
	p.running.Go(func() {
		defer cancel()
		p.set(one, p.find(ctx, path))
	})
	return maybe
}

// find dials until a server answers. Without an answer in time, the file is not a socket.
func (p *probes) find(ctx context.Context, path string) kind {
	tick := time.NewTicker(p.every)
	defer tick.Stop()
	for {
		if p.dial(ctx, path) == nil {
			return isSocket
		}
		select {
		case <-ctx.Done():
			return notSocket
		case <-tick.C:
		}
	}
}

func (p *probes) set(one *probe, result kind) {
	p.mu.Lock()
	one.result = result
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// forget drops the results of files that are gone, and with again those of sockets
// without a server, so that they are dialled again.
func (p *probes) forget(exists map[string]bool, again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for path, one := range p.of {
		if !exists[path] || again && one.result == notSocket {
			one.cancel()
			delete(p.of, path)
		}
	}
}

// close ends the probes.
func (p *probes) close() {
	p.forget(nil, false)
	p.running.Wait()
}
