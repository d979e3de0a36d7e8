package change

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// step is one thing that happens to the model.
type step struct {
	restart bool
	desired Desired
	timeout time.Duration
	after   time.Duration // since the step before
}

func steps() *rapid.Generator[[]step] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		s := step{
			restart: rapid.IntRange(0, 9).Draw(t, "restart") == 0,
			timeout: time.Duration(rapid.SampledFrom([]int{100, 1000, 2080, 3000, 60000}).Draw(t, "timeout")) * time.Millisecond,
			after:   time.Duration(rapid.SampledFrom([]int{0, 0, 100, 1000, 2500, 9000}).Draw(t, "after")) * time.Millisecond,
		}
		switch rapid.IntRange(0, 3).Draw(t, "what") {
		case 0:
			s.desired.Size = rapid.Int32Range(11, 14).Draw(t, "size")
		case 1:
			s.desired.Throughput = rapid.Int32Range(126, 128).Draw(t, "throughput")
		case 2:
			s.desired.Tags = map[string]string{"a": rapid.SampledFrom([]string{"1", "2"}).Draw(t, "a")}
		default:
			s.desired.IOPSPerGB = rapid.Int32Range(300, 302).Draw(t, "ratio")
		}
		return s
	}), 1, 25)
}

// Random changes with short and long timeouts, restarts, late descriptions and lost
// answers. A change that succeeded is in effect unless a later call changes it; no
// ModifyVolume without a change is sent; in the end every last desired state is in effect.
func TestModel_successfulChangesAreInEffect(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		history := steps().Draw(rt, "steps")
		var failed string
		synctest.Test(t, func(*testing.T) { failed = newModel(seed).run(history) })
		if failed != "" {
			rt.Fatal(failed)
		}
	})
}

type model struct {
	ec2     *ec2
	changer *Changer
	ctx     context.Context
	stop    context.CancelFunc
	calls   sync.WaitGroup

	mu      sync.Mutex
	latest  map[string]int // last call that set a field
	desired map[string]Desired
	failed  string
}

func newModel(seed uint64) *model {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, seed))
	below := func(n int64) int64 { mu.Lock(); defer mu.Unlock(); return random.Int64N(n) }
	volume := gp3("vol-1")
	if seed%2 == 1 { // made under higher limits than those of package volumetype
		volume.IOPS = 90000
	}
	e := newEC2(volume)
	e.rest, e.optimizes = 0, 3*time.Second
	e.lag = func() time.Duration {
		if below(100) < 70 {
			return 0
		}
		return time.Duration(below(int64(2500 * time.Millisecond)))
	}
	e.lose = func(action string) bool { return action == "ModifyVolume" && below(100) < 10 }
	m := &model{ec2: e, changer: New(e, Options{}), latest: map[string]int{}, desired: map[string]Desired{}}
	m.ctx, m.stop = context.WithCancel(context.Background())
	return m
}

func (m *model) fail(format string, arguments ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed == "" {
		m.failed = fmt.Sprintf(format, arguments...) + fmt.Sprintf("\n%q", m.ec2.journal)
	}
}

func field(w Desired) string {
	switch {
	case w.Size != 0:
		return "size"
	case w.Throughput != 0:
		return "throughput"
	case w.IOPSPerGB != 0:
		return "iops"
	}
	return "tags"
}

func (m *model) run(history []step) string {
	time.Sleep(time.Hour)
	for i, s := range history {
		time.Sleep(s.after)
		if s.restart {
			m.changer.Close()
			m.calls.Wait()
			time.Sleep(3 * time.Second)
			m.changer = New(m.ec2, Options{})
		}
		m.call(i+1, s)
	}
	m.calls.Wait()
	for _, w := range m.desired {
		m.finish(len(history)+1, w)
	}
	m.changer.Close()
	m.stop()
	m.checkModifications()
	return m.failed
}

func (m *model) note(number int, w Desired) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latest[field(w)], m.desired[field(w)] = number, w
}

func (m *model) call(number int, s step) {
	m.note(number, s.desired)
	changer := m.changer
	m.calls.Go(func() {
		ctx, cancel := context.WithTimeout(m.ctx, s.timeout)
		defer cancel()
		if _, err := changer.Apply(ctx, nil, "vol-1", s.desired); err == nil {
			m.judge(number, s.desired)
		}
	})
	synctest.Wait()
}

// judge compares a desired state that was answered OK with EC2. A ratio is kept at
// the size of its time only.
func (m *model) judge(number int, w Desired) {
	m.mu.Lock()
	latest := m.latest[field(w)] == number
	m.mu.Unlock()
	v := m.ec2.truth("vol-1")
	switch {
	case w.Size > v.Size:
		m.fail("call %d: %s was answered OK, the volume has %d GiB", number, w, v.Size)
	case !latest, w.IOPSPerGB != 0 && v.IOPS >= w.IOPSPerGB*10, w.Size != 0:
	default:
		if p, err := planFor(v, w); err != nil || !p.done() {
			m.fail("call %d: %s was answered OK, the volume is %+v", number, w, v)
		}
	}
}

func (m *model) finish(number int, w Desired) {
	m.note(number, w)
	for range 100 {
		ctx, cancel := context.WithTimeout(m.ctx, time.Minute)
		_, err := m.changer.Apply(ctx, nil, "vol-1", w)
		cancel()
		if err == nil {
			m.judge(number, w)
			return
		}
		time.Sleep(4 * time.Second)
	}
	m.fail("%s was not done in the end", w)
}

func (m *model) checkModifications() {
	if m.ec2.idle > 0 {
		m.fail("%d modifications changed nothing", m.ec2.idle)
	}
}
