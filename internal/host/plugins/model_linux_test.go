package plugins

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// modelled is an instance as the model sees it.
type modelled struct {
	process *process
	away    bool
}

// world is what should be: the instances in the order in which they registered.
type world []*modelled

func (w world) serving() *process {
	for _, one := range slices.Backward(w) {
		if !one.away {
			return one.process
		}
	}
	return nil
}

// TestManager_theNewestInstanceThatAnswersServes lets instances start, stop,
// crash and come back at random, and compares who serves with a model after each.
func TestManager_theNewestInstanceThatAnswersServes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test
	m := newMachine(t, func(m *Manager) { m.timing.firstRetry, m.timing.late = time.Millisecond, time.Millisecond })
	var now world
	var history []string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d: %v", seed, history)
		}
	})
	for step := range 150 {
		switch event := random.IntN(4); {
		case event == 0 && len(now) < 5 || len(now) == 0:
			p := m.spawn(fmt.Sprintf("i%d", step), csidriver.New("d.example"))
			history = append(history, fmt.Sprintf("start %d", step))
			now = append(now, &modelled{process: p})
			m.eventually(func() bool { return m.state(p) == StateRegistered })
		case event == 1:
			at := random.IntN(len(now))
			history = append(history, "stop "+now[at].process.socket)
			now[at].process.stop()
			now = slices.Delete(now, at, at+1)
			m.until(func() bool { return m.instances("d.example") == len(now) })
		default:
			one := now[random.IntN(len(now))]
			if one.away {
				history = append(history, "back "+one.process.socket)
				one.process.revive()
			} else {
				history = append(history, "crash "+one.process.socket)
				one.process.crash()
			}
			one.away = !one.away
			m.eventually(func() bool { return m.state(one.process) == StateAway == one.away })
		}
		m.serving(now.serving())
		if want := now.serving(); want != nil {
			if err := m.wait("d.example").Client.Probe(t.Context()); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		}
		if list := m.manager.List(); len(list) != len(now) {
			t.Fatalf("step %d: %d sockets are listed, there are %d", step, len(list), len(now))
		}
	}
}

func (m *machine) state(p *process) State {
	for _, status := range m.manager.List() {
		if status.Socket == p.socket {
			return status.State
		}
	}
	return ""
}

// eventually waits for a condition that changes nothing in the actual world.
func (m *machine) eventually(condition func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(timeout); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("it did not happen; log: %s", m.log)
		}
	}
}
