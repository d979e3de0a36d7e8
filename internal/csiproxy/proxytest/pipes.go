package proxytest

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc/test/bufconn"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/server"
)

const buffer = 64 << 10

// Pipes are the named pipes of a simulated machine, which are only within this process:
// for tests of what serves and what calls them on any system.
type Pipes struct {
	mu       sync.Mutex
	open     map[string]*pipe
	failures map[string]error // of Listen, by name
	race     map[string]server.Process
}

// pipe is one that a process serves.
type pipe struct {
	*bufconn.Listener
	owner server.Process
	sddl  string
}

// NewPipes makes a machine without pipes.
func NewPipes() *Pipes {
	return &Pipes{open: map[string]*pipe{}, failures: map[string]error{}, race: map[string]server.Process{}}
}

// As is the machine as one of its processes uses it.
func (p *Pipes) As(process server.Process) server.Transport { return view{p, process} }

type view struct {
	pipes *Pipes
	self  server.Process
}

// Probe implements server.Transport.
func (v view) Probe(ctx context.Context, name string) (*server.Process, error) {
	v.pipes.mu.Lock()
	defer v.pipes.mu.Unlock()
	if served := v.pipes.open[canonical(name)]; served != nil {
		return &served.owner, ctx.Err()
	}
	return nil, ctx.Err()
}

// Listen implements server.Transport.
func (v view) Listen(_ context.Context, name, sddl string) (net.Listener, error) {
	v.pipes.mu.Lock()
	defer v.pipes.mu.Unlock()
	name = canonical(name)
	if winner, ok := v.pipes.race[name]; ok {
		delete(v.pipes.race, name)
		v.pipes.add(name, winner, "")
	}
	if err := v.pipes.failures[name]; err != nil {
		return nil, err
	}
	if v.pipes.open[name] != nil {
		return nil, fmt.Errorf("%w: the pipe exists", server.ErrTaken)
	}
	return &listener{v.pipes.add(name, v.self, sddl), name, v.pipes}, nil
}

// Client implements server.Transport.
func (view) Client(net.Conn) server.Process {
	return server.Process{ID: 4711, Program: `C:\client.exe`}
}

// add needs the lock.
func (p *Pipes) add(name string, owner server.Process, sddl string) *pipe {
	made := &pipe{Listener: bufconn.Listen(buffer), owner: owner, sddl: sddl}
	p.open[name] = made
	return made
}

// listener takes its pipe away with itself.
type listener struct {
	*pipe
	name  string
	pipes *Pipes
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.pipes.mu.Lock()
	if l.pipes.open[l.name] == l.pipe {
		delete(l.pipes.open, l.name)
	}
	l.pipes.mu.Unlock()
	return l.Listener.Close()
}

// Take makes a pipe for another process, which serves nothing on it.
func (p *Pipes) Take(name string, owner server.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(canonical(name), owner, "")
}

// TakeLate makes a pipe for another process between the next probe and Listen.
func (p *Pipes) TakeLate(name string, owner server.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.race[canonical(name)] = owner
}

// Break ends a pipe as if Windows had lost it, or as its process's end does. It
// reports whether there was one.
func (p *Pipes) Break(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	served := p.open[canonical(name)]
	if served == nil {
		return false
	}
	delete(p.open, canonical(name))
	_ = served.Close()
	return true
}

// Fail makes Listen fail from now on; nil mends it.
func (p *Pipes) Fail(name string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures[canonical(name)] = err
}

// Owners returns the process that serves each pipe, by lower-case name.
func (p *Pipes) Owners() map[string]server.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	owners := map[string]server.Process{}
	for name, served := range p.open {
		owners[name] = served.owner
	}
	return owners
}

// Descriptor is the security descriptor that a pipe was made with.
func (p *Pipes) Descriptor(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if served := p.open[canonical(name)]; served != nil {
		return served.sddl
	}
	return ""
}

// Dial connects to a pipe; fs.ErrNotExist when no process serves it.
func (p *Pipes) Dial(ctx context.Context, name string) (net.Conn, error) {
	p.mu.Lock()
	served := p.open[canonical(name)]
	p.mu.Unlock()
	if served == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return served.DialContext(ctx)
}

// canonical folds a name as Windows does. The doubled backslashes of some clients
// are one.
func canonical(name string) string {
	name = strings.ToLower(strings.ReplaceAll(name, "/", `\`))
	rest := strings.TrimLeft(name, `\`)
	for strings.Contains(rest, `\\`) {
		rest = strings.ReplaceAll(rest, `\\`, `\`)
	}
	return `\\` + rest
}
