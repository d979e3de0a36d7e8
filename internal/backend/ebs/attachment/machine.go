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
	"maps"
	"slices"
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

	mu      sync.Mutex
	volumes map[string]map[string]*entry // by volume and instance
	first   time.Time                    // when the first call came
	swept   time.Time
}

// pair is a volume at an instance.
type pair struct{ volume, instance string }

// entry has the operation and the memory of a pair. Machine.mu guards its fields.
type entry struct {
	operation *operation
	memory    memory
	claimed   bool // AttachVolume is about to be sent, or runs
}

// New makes a Machine. It makes no EC2 call.
func New(c Cloud, o Options) *Machine {
	o = o.withDefaults()
	m := &Machine{cloud: c, options: o, log: o.Logger, names: newNames(o), pending: newPending(),
		volumes: map[string]map[string]*entry{}}
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

// entry finds or makes the entry of a pair; the caller holds m.mu.
func (m *Machine) entry(p pair) *entry {
	instances := m.volumes[p.volume]
	if instances == nil {
		instances = map[string]*entry{}
		m.volumes[p.volume] = instances
	}
	e := instances[p.instance]
	if e == nil {
		e = &entry{}
		instances[p.instance] = e
	}
	return e
}

// remember changes the memory of a pair.
func (m *Machine) remember(p pair, change func(*memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.entry(p).memory)
}

// recall returns the memory of a pair.
func (m *Machine) recall(p pair) memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.volumes[p.volume][p.instance]; e != nil {
		return e.memory
	}
	return memory{}
}

// known are the instances of a volume that have an entry.
func (m *Machine) known(volume string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.volumes[volume]))
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
	now := time.Now()
	for instance, e := range m.volumes[p.volume] {
		if instance != p.instance && !d.use.Shared && (e.claimed || e.memory.expected(now, m.options)) {
			return fmt.Errorf("%w: volume %s is being attached to instance %s", backend.ErrInUse, p.volume, instance)
		}
	}
	m.entry(p).claimed = true
	return nil
}

// release ends a claim.
func (m *Machine) release(p pair) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entry(p).claimed = false
}

// remembered is how long the memory of a pair lasts after its last call: longer than a
// caller waits between repeats.
const remembered = 10 * time.Minute

// sweep removes pairs that have no operation and whose memory has expired; the caller
// holds m.mu. It runs with the calls, so that an idle driver has no timer.
func (m *Machine) sweep(now time.Time) {
	if now.Sub(m.swept) < time.Minute {
		return
	}
	m.swept = now
	for volume, instances := range m.volumes {
		for instance, e := range instances {
			if e.operation == nil && now.Sub(e.memory.latest()) >= remembered {
				delete(instances, instance)
			}
		}
		if len(instances) == 0 {
			delete(m.volumes, volume)
		}
	}
}
