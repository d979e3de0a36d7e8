package lab

import (
	"cmp"
	"context"
	"errors"
	"slices"
)

// ErrDead is the result of a step of a process that has crashed: it was not taken.
var ErrDead = errors.New("the process is dead")

// Step is what a process is about to do.
type Step struct {
	// Kind and Object are the key of the step together with the name of the process:
	// "update persistentvolumes" and "pvc-1".
	Kind, Object string
	// Faults name what can go wrong. The caller of Pass gets the chosen one.
	Faults []string
}

// Process is an actor of the world, whose steps the Lab orders: a process, a node, the
// server's side of a connection.
type Process struct {
	lab  *Lab
	name string

	// The Lab's mutex guards what follows.
	dead, paused bool
	died         chan struct{}
}

// parked is a step that waits.
type parked struct {
	process *Process
	step    Step
	key     string
	order   uint64 // of arrival, for steps of equal keys
	taken   chan string
}

// Process makes an actor. Its name must be unique among those that are alive.
func (l *Lab) Process(name string) *Process {
	return &Process{lab: l, name: name, died: make(chan struct{})}
}

// Name is the name of the process.
func (p *Process) Name() string { return p.name }

// Pass waits until the step may be taken, and returns the fault that it is to have; "" for
// none. The error is ErrDead if the process has died, or that of ctx if it ended first: the
// step is not taken then.
func (p *Process) Pass(ctx context.Context, s Step) (fault string, err error) {
	waiting, err := p.park(s)
	if err != nil {
		return "", err
	}
	select {
	case fault = <-waiting.taken:
		return fault, nil
	case <-p.died:
		p.lab.withdraw(waiting)
		return "", ErrDead
	case <-ctx.Done():
		p.lab.withdraw(waiting)
		return "", ctx.Err()
	}
}

func (p *Process) park(s Step) (*parked, error) {
	l := p.lab
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.dead {
		return nil, ErrDead
	}
	l.order++
	waiting := &parked{
		process: p, step: s, key: p.name + " " + s.Kind + " " + s.Object, order: l.order, taken: make(chan string, 1),
	}
	l.parked = append(l.parked, waiting)
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return waiting, nil
}

// Crash ends the process between two steps: those that wait are not taken, and later ones
// fail at once. The world cancels the contexts of the process, so that its goroutines end.
func (p *Process) Crash() {
	p.lab.mu.Lock()
	defer p.lab.mu.Unlock()
	if !p.dead {
		p.dead = true
		close(p.died)
	}
}

// Dead reports whether the process has crashed.
func (p *Process) Dead() bool {
	p.lab.mu.Lock()
	defer p.lab.mu.Unlock()
	return p.dead
}

// Pause stops the process, as SIGSTOP does, or lets it continue: its steps wait meanwhile.
// Its goroutines still notice that time passes; the steps that wait may be taken afterwards.
func (p *Process) Pause(paused bool) {
	p.lab.mu.Lock()
	defer p.lab.mu.Unlock()
	p.paused = paused
}

// Paused reports whether the process is stopped.
func (p *Process) Paused() bool {
	p.lab.mu.Lock()
	defer p.lab.mu.Unlock()
	return p.paused
}

// withdraw removes a step that will not be taken.
func (l *Lab) withdraw(gone *parked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parked = slices.DeleteFunc(l.parked, func(p *parked) bool { return p == gone })
}

// ready returns the steps that can be taken, sorted by their keys.
func (l *Lab) ready() []*parked {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []*parked
	for _, p := range l.parked {
		if !p.process.paused && !p.process.dead {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b *parked) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.order, b.order))
	})
	return found
}

// take lets a step be taken.
func (l *Lab) take(p *parked, fault string) {
	l.withdraw(p)
	text := p.key
	if fault != "" {
		text += " ! " + fault
	}
	l.trace.step(l.Elapsed(), text)
	p.taken <- fault
}
