package ebs_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/internal/concurrency"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// The size of the chaos: calls of CSI in all, lives of volumes at once,
// controllers and nodes.
const (
	chaosCalls, chaosCallsShort = 10_000, 1_000
	chaosLives                  = 40
	chaosControllers            = 3
	chaosNodes                  = 4
	chaosZone                   = "us-west-2a"
)

// chaosSeed decides what goes wrong when; make soak tries others.
var chaosSeed = flag.Uint64("chaos.seed", 20260821, "decides the course of TestChaos")

// timeout is how long, in virtual time, one intention may take before the
// test calls it stuck: the worst fault lasts until the operator's next round.
const timeout = 6 * time.Hour

// TestChaos lets several controllers serve random CSI calls while they are
// killed, replies are lost, calls are throttled and transitions hang. It checks that no
// volume is attached twice, that every answer is true, that every desired state is
// reached in the end, and that no resource leaks.
func TestChaos(t *testing.T) {
	t.Parallel()
	calls := chaosCalls
	if testing.Short() {
		calls = chaosCallsShort
	}
	synctest.Test(t, func(t *testing.T) {
		c := newChaos(t, calls, storm())
		defer c.close()
		ctx, stop := context.WithCancel(t.Context())
		var others sync.WaitGroup
		others.Go(func() { c.kill(ctx) })
		others.Go(func() { c.operate(ctx) })
		others.Go(func() { c.revoke(ctx) })
		var lives sync.WaitGroup
		for i := range chaosLives {
			lives.Go(func() {
				(&life{chaos: c, number: i, random: rand.New(rand.NewPCG(c.seed, uint64(i)))}).live(t.Context())
			})
		}
		lives.Wait()
		stop()
		others.Wait()
		c.check()
	})
}

// chaos is an EC2 that misbehaves and the controllers that use it.
type chaos struct {
	*testing.T
	seed     uint64
	emulator *ec2emu.Server
	nodes    []string
	left     atomic.Int64 // calls that are still to be made
	made     atomic.Int64
	weather
	mu      sync.Mutex
	running []*process
}

// process is a controller that can be killed.
type process struct {
	*guard.Guard
	client *cloud.Client
	ctx    context.Context
	end    context.CancelFunc
}

// weather is what goes wrong in a chaos.
type weather struct {
	knobs        world.Knobs
	throttling   ec2emu.Throttling
	faults       []ec2emu.Fault
	volumeFaults []world.Fault
	// prompt requires every answer soon after EC2 was done; calls must not fail then.
	prompt bool
}

// storm is everything that can go wrong, at once.
func storm() weather {
	return weather{
		knobs: world.Harsh(), throttling: ec2emu.Throttling{Preset: ec2emu.Default},
		faults: []ec2emu.Fault{
			{Kind: ec2emu.FaultDropReply, Probability: 0.02},
			{Kind: ec2emu.FaultDrop, Probability: 0.02},
			{Kind: ec2emu.FaultError, Status: http.StatusServiceUnavailable, Code: "Unavailable", Probability: 0.02},
			{Kind: ec2emu.FaultThrottle, Probability: 0.02},
		},
		volumeFaults: []world.Fault{
			{Kind: world.Slow, Probability: 0.03, Takes: world.Uniform(5*time.Second, 3*time.Minute)},
			{Kind: world.StuckAttaching, Probability: 0.01}, {Kind: world.StuckDetaching, Probability: 0.005},
			{Kind: world.CreateFails, Probability: 0.005}, {Kind: world.CreateVanishes, Probability: 0.005},
			{Kind: world.ModifyFails, Probability: 0.01}, {Kind: world.OtherName, Probability: 0.01},
		},
	}
}

func newChaos(t *testing.T, calls int, weather weather) *chaos {
	c := &chaos{T: t, seed: *chaosSeed, weather: weather}
	c.left.Store(int64(calls))
	knobs := ec2emu.Knobs{Latency: map[string]world.Takes{"*": world.Uniform(5*time.Millisecond, 80*time.Millisecond)}}
	knobs.Throttling = weather.throttling
	w := world.Config{Knobs: weather.knobs, Seed: c.seed}
	w.Knobs.Snapshots.Every = 0
	emulator, err := ec2emu.New(ec2emu.Options{World: w, Knobs: knobs, Seed: c.seed})
	if err != nil {
		t.Fatal(err)
	}
	c.emulator = emulator
	for range chaosNodes {
		c.addNode()
	}
	for _, fault := range weather.faults {
		if _, err := emulator.AddFault(fault); err != nil {
			t.Fatal(err)
		}
	}
	for _, fault := range weather.volumeFaults {
		if _, err := emulator.World().AddFault(fault); err != nil {
			t.Fatal(err)
		}
	}
	for range chaosControllers {
		c.running = append(c.running, c.start())
	}
	return c
}

func (c *chaos) addNode() {
	id, err := c.emulator.World().RunInstance(world.InstanceSpec{Type: "m5.large", Zone: chaosZone})
	if err != nil {
		c.Fatal(err)
	}
	c.nodes = append(c.nodes, id)
}

// start starts a controller process without memory.
func (c *chaos) start() *process {
	ctx, end := context.WithCancel(context.Background())
	client, err := cloud.New(ctx, cloud.Options{
		Endpoint: "http://ec2.test", Region: "us-west-2", HTTPClient: &http.Client{Transport: c.emulator.RoundTripper()},
		Credentials: cloud.StaticCredentials("test", "test"), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		c.Fatal(err)
	}
	controller, err := ebs.New(ebs.Options{Cloud: client})
	if err != nil {
		c.Fatal(err)
	}
	return &process{Guard: guard.New(controller), client: client, ctx: ctx, end: end}
}

// stop ends a process, with its calls at any step.
func (p *process) stop() {
	p.end()
	_ = p.client.Close()
}

// leaseLost is how long a killed controller's work waits for the next one. The lag of
// describes is shorter, as it is than a lease of Kubernetes.
const leaseLost = 2 * time.Second

// kill ends one controller after the other and starts a new one instead.
func (c *chaos) kill(ctx context.Context) {
	random := rand.New(rand.NewPCG(c.seed, 1<<32))
	for concurrency.Sleep(ctx, time.Duration(1+random.IntN(20))*time.Second) == nil {
		i := random.IntN(len(c.running))
		c.of(i).stop()
		time.Sleep(leaseLost)
		fresh := c.start()
		c.mu.Lock()
		c.running[i] = fresh
		c.mu.Unlock()
	}
}

// operate acts as an administrator who handles what hangs: a machine that keeps
// volumes for long is stopped and started again.
func (c *chaos) operate(ctx context.Context) {
	w := c.emulator.World()
	for i := 0; concurrency.Sleep(ctx, 10*time.Minute) == nil; i++ {
		id := c.nodes[i%len(c.nodes)]
		if err := w.StopInstance(id); err != nil {
			c.Error(err)
		}
		time.Sleep(5 * time.Second) // also at the end: an instance that is stopping cannot be started
		if err := w.StartInstance(id); err != nil {
			c.Error(err)
		}
	}
}

// revoke takes the grant of the key away that some volumes are encrypted with, for
// up to two hours, and restores it.
func (c *chaos) revoke(ctx context.Context) {
	random := rand.New(rand.NewPCG(c.seed, 1<<33))
	set := func(keys ...string) {
		knobs := c.emulator.World().Knobs()
		knobs.Encryption.UnusableKeys = keys
		if err := c.emulator.World().SetKnobs(knobs); err != nil {
			c.Error(err)
		}
	}
	for concurrency.Sleep(ctx, time.Duration(1+random.IntN(10))*time.Minute) == nil {
		set("*")
		_ = concurrency.Sleep(ctx, time.Duration(10+random.IntN(110))*time.Minute)
		set()
	}
}

// of is the controller of a share of the volumes; it may be dead, and its
// successor not there yet.
func (c *chaos) of(share int) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[share%len(c.running)]
}

func (c *chaos) close() {
	for _, p := range c.running {
		p.stop()
	}
	if err := c.emulator.Close(); err != nil {
		c.Error(err)
	}
}

// check compares the remaining resources after every life has ended.
func (c *chaos) check() {
	c.emulator.RemoveFault("")
	knobs := c.emulator.World().Knobs()
	knobs.Consistency = world.Consistency{}
	if err := c.emulator.World().SetKnobs(knobs); err != nil {
		c.Fatal(err)
	}
	time.Sleep(time.Minute)
	for _, wrong := range c.emulator.World().Audit() {
		c.Error(wrong)
	}
	p := c.start()
	defer p.stop()
	volumes, _, err := p.Volumes(c.Context(), "", 0)
	if err != nil || len(volumes) > 0 {
		c.Errorf("%d volumes are left, first %+v (%v)", len(volumes), first(volumes), err)
	}
	snapshots, _, err := p.Snapshots(c.Context(), backend.SnapshotFilter{}, "", 0)
	if err != nil || len(snapshots) > 0 {
		c.Errorf("%d snapshots are left, first %+v (%v)", len(snapshots), first(snapshots), err)
	}
	c.Logf("%d calls of CSI, %d calls of EC2, in %v of virtual time", c.made.Load(), c.emulator.Statistics().Calls(""), time.Since(began))
}

// began is when every synctest bubble begins.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func first[T any](list []T) (one T) {
	if len(list) > 0 {
		one = list[0]
	}
	return one
}

// caller calls one of the controllers.
type caller struct {
	share  int
	random *rand.Rand
}

// until repeats a call, as an orchestrator does, until it succeeds or its error
// is one of the final ones.
func (c *chaos) until(ctx context.Context, by caller, what string, call func(context.Context, *process) error, finals ...error) error {
	began := time.Now()
	for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
		err := c.once(ctx, by, call)
		if err == nil {
			return nil
		}
		for _, final := range finals {
			if errors.Is(err, final) {
				return err
			}
		}
		if time.Since(began) > timeout {
			c.Errorf("%s is not done after %v: %v", what, timeout, err)
			return fmt.Errorf("given up: %w", err)
		}
		_ = concurrency.Sleep(ctx, wait)
	}
}

// once makes one call with a deadline, at a process that may be killed in it.
func (c *chaos) once(ctx context.Context, by caller, call func(context.Context, *process) error) error {
	c.left.Add(-1)
	c.made.Add(1)
	p := c.of(by.share)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+by.random.IntN(60))*time.Second)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	return call(ctx, p)
}
