package world

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

// World is one account in one region. It is safe for concurrent use.
//
// It has one timer, for the next transition that is due. A call first applies the
// transitions that have become due.
type World struct {
	region, account string
	types           map[string]TypeLimits
	instanceTypes   map[string]InstanceType
	zones           []Zone
	clock           Clock
	devices         Devices
	log             *slog.Logger
	secret          [32]byte // of page tokens
	store           *os.Root // of the state file, nil without

	mu        sync.Mutex
	knobs     Knobs
	random    *rand.Rand
	faults    []Fault
	lastFault int
	state
	restored bool // from the state file
	dirty    bool
	closed   bool
	timer    func() bool // stops it
	armed    time.Time
	alarms   int64 // timers set so far
	firing   sync.WaitGroup
}

// state is what a restart keeps.
type state struct {
	Offset       time.Duration // of the clock
	Orders       int64         // numbers given so far
	Volumes      map[string]*volume
	Instances    map[string]*instance
	Snapshots    map[string]*snapshot
	FastRestores map[string]*fastRestore
	Tokens       map[string]*token
	Kept         map[string]*volume // deleted, by a rule that retains them
	Events       events
}

func newState() state {
	return state{
		Volumes: map[string]*volume{}, Instances: map[string]*instance{}, Snapshots: map[string]*snapshot{},
		FastRestores: map[string]*fastRestore{}, Tokens: map[string]*token{}, Kept: map[string]*volume{},
	}
}

// New makes a world, or loads the one of Config.StateDir and applies the transitions that
// became due meanwhile.
func New(c Config) (*World, error) {
	w := &World{
		region: orElse(c.Region, "us-west-2"), account: orElse(c.AccountID, "123456789012"),
		types: typeLimits(), instanceTypes: builtInTypes(), clock: c.Clock, devices: c.Devices, log: c.Logger,
		knobs: c.Knobs, state: newState(),
	}
	if w.clock == nil {
		w.clock = machineClock{}
	}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	if w.zones = c.Zones; len(w.zones) == 0 {
		w.zones = threeZones(w.region)
	}
	for _, t := range c.InstanceTypes {
		w.instanceTypes[t.Name] = t
	}
	if err := w.load(c.StateDir); err != nil {
		return nil, errors.Join(err, w.closeStore())
	}
	// Another sequence after each restart, because IDs must not repeat.
	w.random = rand.New(rand.NewPCG(c.Seed, uint64(w.Orders)))
	for i := range w.secret {
		w.secret[i] = byte(w.random.Uint32())
	}
	if err := w.presentAll(); err != nil {
		return nil, errors.Join(err, w.closeStore())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advance()
	w.arm()
	return w, w.save()
}

// Close ends the timer, waits for it and removes the devices. The data and the state file
// stay.
func (w *World) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	w.disarm()
	w.mu.Unlock()
	w.firing.Wait()
	var err error
	if w.devices != nil {
		err = w.devices.Close()
	}
	return errors.Join(err, w.closeStore())
}

// Region is the region that the world is in.
func (w *World) Region() string { return w.region }

// Account is the account's ID.
func (w *World) Account() string { return w.account }

// Knobs returns the current knobs.
func (w *World) Knobs() Knobs {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.knobs
}

// SetKnobs replaces the knobs. Transitions under way keep their times.
func (w *World) SetKnobs(k Knobs) error {
	switch k.Cooldown {
	case "", CooldownFour, CooldownSixHours, CooldownOff:
	default:
		return fmt.Errorf("cooldown %q: want %s, %s or %s", k.Cooldown, CooldownFour, CooldownSixHours, CooldownOff)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.knobs = k
	return nil
}

// Now is the world's time.
func (w *World) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now()
}

func (w *World) now() time.Time { return w.clock.Now().Add(w.Offset).UTC() }

// Advance moves the world's clock forward and applies the transitions that become due.
func (w *World) Advance(d time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Offset += max(d, 0)
	w.dirty = true
	w.disarm()
	w.advance()
	w.arm()
	return w.save()
}

// begin locks the world and applies the transitions that have become due.
func (w *World) begin() {
	w.mu.Lock()
	w.advance()
}

// end saves a changed state and unlocks the world. An error becomes the answer, because no
// caller may act on a change that a restart would lose.
func (w *World) end(err *error) {
	defer w.mu.Unlock()
	w.advance() // transitions that take no time
	w.arm()
	if saveErr := w.save(); saveErr != nil {
		w.log.Error("the state was not saved", "error", saveErr)
		if *err == nil {
			*err = internal(saveErr)
		}
	}
}

// read is begin and end of a call that changes no state itself.
func (w *World) read(err *error) func() {
	w.begin()
	return func() { w.end(err) }
}

// order is the next number; resources are listed by it.
func (w *World) order() int64 {
	w.Orders++
	w.dirty = true
	return w.Orders
}

// newID is a new ID: the prefix and 17 hexadecimal digits.
func (w *World) newID(prefix string) string {
	return fmt.Sprintf("%s0%08x%08x", prefix, uint32(w.order()), w.random.Uint32())
}

// deviceError logs an error of a device, which EC2's callers do not see.
func (w *World) deviceError(what, id string, err error) {
	if err != nil {
		w.log.Error("device", "step", what, "id", id, "error", err)
	}
}

type machineClock struct{}

func (machineClock) Now() time.Time { return time.Now() }

func (machineClock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(d, f).Stop
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
