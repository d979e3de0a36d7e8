// Package attachment attaches EBS volumes to instances and detaches them.
//
// For each pair of volume and instance the latest call decides. It supersedes a waiting
// call in the other direction, which fails at once with backend.ErrBusy. If EC2 has a
// request of that call under way, the request ends first and is then undone. A call joins
// a request under way in its own direction, also if another process sent it.
//
// No state has to survive the process, because EC2 has it. The memory of a few seconds or
// minutes only guards against answers of EC2 that are older than an earlier answer, and
// against device names whose last use is uncertain. docs/reference/ebs.md lists the
// requirements with their tests.
package attachment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// Cloud has the calls of EC2 that the Machine needs; *cloud.Client implements it.
type Cloud interface {
	Volume(ctx context.Context, id string) (cloud.Volume, error)
	Instance(ctx context.Context, id string) (cloud.Instance, error)
	InstanceType(ctx context.Context, name string) (cloud.InstanceType, error)
	WaitVolume(ctx context.Context, id string, e cloud.Expect,
		ready func(v cloud.Volume, found bool) (bool, error)) (cloud.Volume, error)
	AttachVolume(ctx context.Context, in cloud.AttachInput) (cloud.Attachment, error)
	DetachVolume(ctx context.Context, volumeID, instanceID string, force bool) error
}

// Options of a Machine; zero fields have the named defaults.
type Options struct {
	// Stuck is how long an attachment or detachment may be under way until it is
	// treated as stuck; 90 s. An attachment is then tried under another name.
	Stuck time.Duration
	// Lag is how long EC2 may take to show the effect of an accepted call; 10 s.
	Lag time.Duration
	// Stale is how old a description may be; 3 s, or Lag if that is shorter.
	Stale time.Duration
	// Uncertain is how long a device name stays reserved if the outcome of its
	// AttachVolume is unknown; 5 min.
	Uncertain time.Duration
	// Refused is how long a device name is not used after EC2 refused it or its
	// attachment got stuck; 1 h.
	Refused time.Duration
	// Described is how long a description of an instance, together with this process's
	// own attachments, serves to choose device names; 30 s.
	Described time.Duration
	// Names is how many device names one call tries; 5.
	Names int
	// Before is called before AttachVolume. It may wait, or fail; it reports its current
	// step with setPhase. May be nil.
	Before func(ctx context.Context, v cloud.Volume, use Use, setPhase func(string)) error
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&o.Stuck, 90*time.Second)
	set(&o.Lag, 10*time.Second)
	set(&o.Stale, min(3*time.Second, o.Lag))
	set(&o.Uncertain, 5*time.Minute)
	set(&o.Refused, time.Hour)
	set(&o.Described, 30*time.Second)
	if o.Names == 0 {
		o.Names = 5
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Machine attaches and detaches. It is safe for concurrent use.
type Machine struct {
	cloud   Cloud
	options Options
	log     *slog.Logger
	names   *names
	pending *Pending
	ended   context.Context // ends with Close
	end     context.CancelFunc
	running sync.WaitGroup
	// guessedCards are the EBS cards of instance types that EC2 refused to describe.
	guessedCards concurrency.Expiring[string, int]
	// memories are by volume and instance.
	memories concurrency.Expiring[string, *concurrency.Expiring[string, memory]]

	mu         sync.Mutex
	operations map[pair]*operation // that are under way
	// claims are the instances, by volume, whose AttachVolume is about to be sent, or runs.
	claims map[string]map[string]bool
	first  time.Time // when the first call came
}

// pair is a volume at an instance.
type pair struct{ volume, instance string }

// New makes a Machine. It makes no EC2 call.
func New(c Cloud, o Options) *Machine {
	o = o.withDefaults()
	m := &Machine{cloud: c, options: o, log: o.Logger, names: newNames(o), pending: newPending(),
		operations: map[pair]*operation{}, claims: map[string]map[string]bool{}}
	m.ended, m.end = context.WithCancel(context.Background())
	return m
}

// errClosed is the error of a closed Machine.
var errClosed = errors.New("the driver is shutting down")

// Close ends every call and waits for the background work to end.
func (m *Machine) Close() {
	m.mu.Lock()
	m.end()
	m.mu.Unlock()
	m.running.Wait()
}

// remembered is how long the memory of a pair lasts after its last change: longer than a
// caller waits between repeats.
const remembered = 10 * time.Minute

// remember changes the memory of a pair.
func (m *Machine) remember(p pair, change func(*memory)) {
	type instances = concurrency.Expiring[string, memory]
	m.memories.Update(p.volume, remembered, func(of *instances, ok bool) *instances {
		if !ok {
			of = &instances{}
		}
		of.Update(p.instance, remembered, func(k memory, _ bool) memory {
			change(&k)
			return k
		})
		return of
	})
}

// recall returns the memory of a pair.
func (m *Machine) recall(p pair) memory {
	of, ok := m.memories.Get(p.volume)
	if !ok {
		return memory{}
	}
	k, _ := of.Get(p.instance)
	return k
}

// recallAll returns the memories of a volume by instance.
func (m *Machine) recallAll(volume string) map[string]memory {
	of, ok := m.memories.Get(volume)
	if !ok {
		return nil
	}
	return of.All()
}

// known are the instances with an operation or a memory for a volume. It reads the
// operations first, because an operation records its memory before it ends.
func (m *Machine) known(volume string) map[string]bool {
	instances := m.operating(volume)
	for instance := range m.recallAll(volume) {
		instances[instance] = true
	}
	return instances
}

// operating are the instances with an operation for a volume.
func (m *Machine) operating(volume string) map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	instances := map[string]bool{}
	for p := range m.operations {
		if p.volume == volume {
			instances[p.instance] = true
		}
	}
	return instances
}

// begin records when the first call came.
func (m *Machine) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.first.IsZero() {
		m.first = time.Now()
	}
}

// staleStart is until when descriptions may be older than the last call of an earlier
// process.
func (m *Machine) staleStart() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.first.Add(m.options.Stale)
}

// claim reserves a volume for the AttachVolume of a pair; ErrInUse if another instance is
// about to get the volume. EC2 does not check this for a Multi-Attach volume, even if the
// caller requests it for one instance.
func (m *Machine) claim(p pair, d desired) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if other := m.attachingElsewhere(p); other != "" && !d.use.Shared {
		return fmt.Errorf("%w: volume %s is being attached to instance %s", backend.ErrInUse, p.volume, other)
	}
	if m.claims[p.volume] == nil {
		m.claims[p.volume] = map[string]bool{}
	}
	m.claims[p.volume][p.instance] = true
	return nil
}

// attachingElsewhere returns another instance that is about to get the volume, "" if
// there is none. The caller holds m.mu.
func (m *Machine) attachingElsewhere(p pair) string {
	for instance := range m.claims[p.volume] {
		if instance != p.instance {
			return instance
		}
	}
	for instance, k := range m.recallAll(p.volume) {
		if instance != p.instance && k.expected(time.Now(), m.options) {
			return instance
		}
	}
	return ""
}

// release ends a claim.
func (m *Machine) release(p pair) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.claims[p.volume], p.instance)
	if len(m.claims[p.volume]) == 0 {
		delete(m.claims, p.volume)
	}
}
