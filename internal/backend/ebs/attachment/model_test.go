package attachment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/cloud"
)

// step is one thing that happens to the model.
type step struct {
	what     string // attach, detach, detach-all, restart, meddle
	volume   int
	instance int
	timeout  time.Duration // of the call
	after    time.Duration // since the step before
}

func steps() *rapid.Generator[[]step] {
	one := rapid.Custom(func(t *rapid.T) step {
		return step{
			what:     rapid.SampledFrom([]string{"attach", "attach", "attach", "detach", "detach", "detach-all", "restart", "meddle"}).Draw(t, "what"),
			volume:   rapid.IntRange(0, 2).Draw(t, "volume"),
			instance: rapid.IntRange(0, 1).Draw(t, "instance"),
			timeout:  time.Duration(rapid.SampledFrom([]int{100, 1000, 3000, 20000, 200000}).Draw(t, "timeout")) * time.Millisecond,
			after:    time.Duration(rapid.SampledFrom([]int{0, 0, 30, 100, 1000, 2500, 9000}).Draw(t, "after")) * time.Millisecond,
		}
	})
	return rapid.SliceOfN(one, 1, 30)
}

// Random calls with and without timeout, restarts, late descriptions, lost answers and
// stuck attachments. When a call succeeds, the pair is in its desired state, unless a later
// call has begun to change it. In the end each pair is in the desired state of its last
// call.
func TestModel_latestCallWins(t *testing.T) {
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
	machine *Machine
	ctx     context.Context
	stop    context.CancelFunc
	calls   sync.WaitGroup

	mu     sync.Mutex
	latest map[pair]int  // number of the last call of a pair
	wants  map[pair]bool // what it wants
	failed string
}

func newModel(seed uint64) *model {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, seed))
	chance := func(percent int) bool { mu.Lock(); defer mu.Unlock(); return random.IntN(100) < percent }
	e := newEC2().addInstance("i-0", "i-1").addVolume("vol-0", "vol-1", "vol-2")
	e.volumes["vol-2"].MultiAttach = true
	e.lag = func() time.Duration {
		if chance(70) {
			return 0
		}
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.Int64N(int64(2500 * time.Millisecond)))
	}
	e.lose = func(string) bool { return chance(10) }
	e.stuck = func(cloud.AttachInput) bool { return chance(5) }
	e.refuse = func(action string, in cloud.AttachInput) error {
		if chance(5) {
			return answer(action, "RequestLimitExceeded", "Request limit exceeded.")
		}
		if action == "AttachVolume" && chance(5) {
			return answer(action, "InvalidParameterValue", "Attachment point %s is already in use", in.Device)
		}
		return nil
	}
	m := &model{ec2: e, machine: New(e, Options{}), latest: map[pair]int{}, wants: map[pair]bool{}}
	m.ctx, m.stop = context.WithCancel(context.Background())
	return m
}

func (m *model) run(history []step) string {
	for i, s := range history {
		time.Sleep(s.after)
		m.step(i+1, s)
	}
	m.calls.Wait()
	m.finish(len(history) + 1)
	m.machine.Close()
	m.stop()
	return m.failed
}

func (m *model) fail(format string, arguments ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed == "" {
		m.failed = fmt.Sprintf(format, arguments...) + fmt.Sprintf("\n%q", m.ec2.journal)
	}
}

func (m *model) step(number int, s step) {
	p := pair{fmt.Sprintf("vol-%d", s.volume), fmt.Sprintf("i-%d", s.instance)}
	switch s.what {
	case "attach", "detach":
		m.call(number, p, s.what == "attach", s.timeout)
	case "detach-all":
		m.detachAll(number, p.volume, s.timeout)
	case "restart": // calls under way are lost with the process
		m.machine.Close()
		m.calls.Wait()
		time.Sleep(3 * time.Second) // a process does not start sooner than that
		m.machine = New(m.ec2, Options{})
	case "meddle": // an administrator detaches a volume that no call is working on
		m.mu.Lock()
		_, known := m.latest[p]
		m.mu.Unlock()
		if !known {
			_ = m.ec2.detach(p.volume, p.instance, false)
		}
	}
}

// note records that a call begins, which is then the latest.
func (m *model) note(number int, p pair, attach bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latest[p], m.wants[p] = number, attach
}

func (m *model) isLatest(number int, p pair) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.latest[p] == number
}

func (m *model) call(number int, p pair, attach bool, timeout time.Duration) {
	m.note(number, p, attach)
	machine := m.machine
	m.calls.Go(func() {
		ctx, cancel := context.WithTimeout(m.ctx, timeout)
		defer cancel()
		begin := time.Now()
		if attach {
			_, err := machine.Attach(ctx, p.volume, p.instance, Use{})
			m.judge(number, p, "attached", err)
		} else {
			m.judge(number, p, "absent", machine.Detach(ctx, p.volume, p.instance))
		}
		if took := time.Since(begin); took > timeout+time.Second {
			m.fail("call %d took %s with a timeout of %s", number, took, timeout)
		}
	})
	synctest.Wait() // the call is in flight
}

func (m *model) judge(number int, p pair, want string, err error) {
	if err != nil {
		return
	}
	if got := m.ec2.truth(p.volume, p.instance); got != want && m.isLatest(number, p) {
		m.fail("call %d was answered OK while %v is %s, not %s", number, p, got, want)
	}
}

func (m *model) detachAll(number int, volume string, timeout time.Duration) {
	pairs := []pair{{volume, "i-0"}, {volume, "i-1"}}
	for _, p := range pairs {
		m.note(number, p, false)
	}
	machine := m.machine
	m.calls.Go(func() {
		ctx, cancel := context.WithTimeout(m.ctx, timeout)
		defer cancel()
		if err := machine.Detach(ctx, volume, ""); err == nil {
			for _, p := range pairs {
				m.judge(number, p, "absent", nil)
			}
		}
	})
	synctest.Wait()
}

// finish repeats the last call of each pair, as an orchestrator does, until each is
// answered. Two calls that attach a volume exclusively to two instances cannot both
// succeed.
func (m *model) finish(number int) {
	var all []pair
	for p := range m.wants {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b pair) int {
		if m.wants[a] != m.wants[b] {
			if m.wants[b] {
				return -1 // detachments first
			}
			return 1
		}
		return m.latest[a] - m.latest[b]
	})
	for _, p := range all {
		m.repeat(number, p, m.wants[p])
	}
	time.Sleep(20 * time.Second)
	taken := map[string]int{}
	for _, p := range all {
		got := m.ec2.truth(p.volume, p.instance)
		if !m.wants[p] && got != "absent" {
			m.fail("in the end %v is %s, though the last call detached it", p, got)
		}
		if got == "attached" {
			taken[p.volume]++
		}
	}
	for volume, count := range taken {
		if count > 1 {
			m.fail("in the end %s is attached to %d instances", volume, count)
		}
	}
}

func (m *model) repeat(number int, p pair, attach bool) {
	m.note(number, p, attach)
	for range 60 {
		ctx, cancel := context.WithTimeout(m.ctx, time.Minute)
		var err error
		if attach {
			_, err = m.machine.Attach(ctx, p.volume, p.instance, Use{})
		} else {
			err = m.machine.Detach(ctx, p.volume, p.instance)
		}
		cancel()
		if attach && errors.Is(err, backend.ErrInUse) {
			return
		}
		if err == nil {
			m.judge(number, p, map[bool]string{true: "attached", false: "absent"}[attach], nil)
			return
		}
		time.Sleep(5 * time.Second)
	}
	m.fail("%v was not done within an hour", p)
}
