package pods

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

func testNow() time.Time { return time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC) }

// never, running and exited are containers; ago is since the end.
func never(name string) containerView { return containerView{Name: name} }
func running(name string) containerView {
	return containerView{Name: name, Phase: workload.Running, Alive: true}
}
func exited(name string, code int, ago, pause time.Duration) containerView {
	return containerView{Name: name, Phase: workload.Exited, Pause: pause, Ended: &workload.Ended{
		ExitCode: code, Started: testNow().Add(-ago - time.Second), Finished: testNow().Add(-ago),
	}}
}
func list(containers ...containerView) []containerView { return containers }

func TestNext(t *testing.T) {
	otherBoot := func(c containerView) containerView { c.OtherBoot = true; return c }
	long := exited("m", 1, 0, time.Minute)
	long.Ended.Started = long.Ended.Started.Add(-steady)
	future := exited("m", 1, -time.Hour, 10*time.Second)
	always, onFailure, no := corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	cases := []struct {
		name string
		view view
		want decision
	}{
		{"a drained pod is stopped", view{Draining: true, Policy: always, Mounted: true, Main: list(running("m"))}, decision{Do: actStop}},
		{"then it is unmounted", view{Draining: true, Policy: always, Mounted: true, Main: list(exited("m", 143, 0, 0))}, decision{Do: actUnmount}},
		{"and its object stays", view{Draining: true, Policy: always, Unmounted: true, Main: list(exited("m", 143, 0, 0))}, decision{Do: actNone}},
		{"a drained hold is unmounted", view{Draining: true, Holder: true, Mounted: true}, decision{Do: actUnmount}},
		{"and not mounted again", view{Draining: true, Holder: true, Unmounted: true}, decision{Do: actNone}},
		{"a deleted pod is removed during a drain", view{Draining: true, Deleting: true, Unmounted: true}, decision{Do: actRemove}},
		{"a new pod is mounted", view{Policy: always, Main: list(never("m"))}, decision{Do: actMount, Start: []string{"m"}}},
		{"with its volumes, it starts", view{Policy: always, Mounted: true, Main: list(never("m"), never("n"))}, decision{Do: actStart, Start: []string{"m", "n"}}},
		{"init containers come first, one by one", view{Policy: always, Mounted: true, Init: list(never("i"), never("j")), Main: list(never("m"))}, decision{Do: actStart, Start: []string{"i"}}},
		{"the next one waits for the first", view{Policy: always, Mounted: true, Init: list(running("i"), never("j")), Main: list(never("m"))}, decision{Do: actNone}},
		{"the second", view{Policy: always, Mounted: true, Init: list(exited("i", 0, 0, 0), never("j")), Main: list(never("m"))}, decision{Do: actStart, Start: []string{"j"}}},
		{"then the others", view{Policy: always, Mounted: true, Init: list(exited("i", 0, 0, 0)), Main: list(never("m"))}, decision{Do: actStart, Start: []string{"m"}}},
		{"a failed init container is repeated", view{Policy: onFailure, Mounted: true, Init: list(exited("i", 1, 0, 0)), Main: list(never("m"))}, decision{Do: actStart, Start: []string{"i"}}},
		{"a failed init container ends a pod that never repeats", view{Policy: no, Mounted: true, Init: list(exited("i", 1, 0, 0)), Main: list(never("m"))}, decision{Do: actUnmount}},
		{"a running container stays", view{Policy: always, Main: list(running("m"))}, decision{Do: actNone}},
		{"a shim that wrote its end still lives", view{Policy: no, Mounted: true, Main: list(containerView{Name: "m", Phase: workload.Exited, Alive: true, Ended: &workload.Ended{}})}, decision{Do: actNone}},
		{"the first failure is repeated at once", view{Policy: always, Mounted: true, Main: list(exited("m", 1, 0, 0))}, decision{Do: actStart, Start: []string{"m"}}},
		{"the second waits", view{Policy: always, Mounted: true, Main: list(exited("m", 1, 4*time.Second, 10*time.Second))},
			decision{Do: actNone, BackOff: map[string]time.Duration{"m": 10 * time.Second}, Again: 6 * time.Second}},
		{"and is repeated", view{Policy: always, Mounted: true, Main: list(exited("m", 1, 10*time.Second, 10*time.Second))}, decision{Do: actStart, Start: []string{"m"}}},
		{"one that ended with an earlier boot does not wait", view{Policy: always, Mounted: true, Main: list(otherBoot(exited("m", 137, 4*time.Second, 10*time.Second)))}, decision{Do: actStart, Start: []string{"m"}}},
		{"a failure after a long time does not wait", view{Policy: always, Mounted: true, Main: list(long)}, decision{Do: actStart, Start: []string{"m"}}},
		{"a clock that was set back prolongs no back-off", view{Policy: always, Mounted: true, Main: list(future)},
			decision{Do: actNone, BackOff: map[string]time.Duration{"m": 10 * time.Second}, Again: 10 * time.Second}},
		{"Always repeats success, too", view{Policy: always, Mounted: true, Main: list(exited("m", 0, 0, 0))}, decision{Do: actStart, Start: []string{"m"}}},
		{"OnFailure does not", view{Policy: onFailure, Mounted: true, Main: list(exited("m", 0, 0, 0))}, decision{Do: actUnmount}},
		{"one that ended waits for the others", view{Policy: no, Mounted: true, Main: list(exited("m", 1, 0, 0), running("n"))}, decision{Do: actNone}},
		{"Never is over", view{Policy: no, Mounted: true, Main: list(exited("m", 1, 0, 0), exited("n", 0, 0, 0))}, decision{Do: actUnmount}},
		{"a finished pod stays so", view{Policy: always, Finished: true, Unmounted: true, Main: list(never("m"))}, decision{Do: actNone}},
		{"a finished pod after a restart gives its volumes back again", view{Policy: no, Finished: true, Main: list(never("m"))}, decision{Do: actUnmount}},
		{"after a boot, init containers run again", view{Policy: always, Mounted: true, Init: list(otherBoot(exited("i", 0, 0, 0))), Main: list(otherBoot(exited("m", 137, 0, 0)))},
			decision{Do: actStart, Start: []string{"i"}}},
		{"but not when the others run already", view{Policy: always, Mounted: true, Init: list(otherBoot(exited("i", 0, 0, 0))), Main: list(running("m"), never("n"))},
			decision{Do: actStart, Start: []string{"n"}}},
		{"an attempt that never came to its command is started", view{Policy: no, Mounted: true, Main: list(containerView{Name: "m", Phase: workload.Starting})}, decision{Do: actStart, Start: []string{"m"}}},
		{"a holder's pod is mounted", view{Policy: always, Holder: true, Main: list(never("m"))}, decision{Do: actMount}},
		{"and runs nothing", view{Policy: always, Holder: true, Mounted: true, Main: list(never("m"))}, decision{Do: actNone}},
		{"deletion ends running containers", view{Policy: always, Deleting: true, Mounted: true, Main: list(running("m"))}, decision{Do: actStop}},
		{"then takes the volumes away", view{Policy: always, Deleting: true, Mounted: true, Main: list(exited("m", 143, 0, 0))}, decision{Do: actUnmount}},
		{"also those whose mounts are unknown", view{Policy: always, Deleting: true, Main: list(never("m"))}, decision{Do: actUnmount}},
		{"then the object", view{Policy: always, Deleting: true, Unmounted: true, Main: list(never("m"))}, decision{Do: actRemove}},
		{"of a holder, too", view{Policy: always, Deleting: true, Holder: true, Mounted: true, Main: list(never("m"))}, decision{Do: actUnmount}},
	}
	for _, c := range cases {
		c.view.Now = testNow()
		got := next(c.view)
		if len(got.BackOff) == 0 {
			got.BackOff = nil
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestPauses_areTheKubelets(t *testing.T) {
	var got []time.Duration
	for waited := time.Duration(0); len(got) < 8; {
		waited = pauseAfter(waited)
		got = append(got, waited/time.Second)
	}
	if diff := cmp.Diff([]time.Duration{10, 20, 40, 80, 160, 300, 300, 300}, got); diff != "" {
		t.Error(diff)
	}
}

// model is a machine that does what next says, and to which things happen.
type model struct {
	view
	removed bool
}

// obey does one thing, and checks that it may be done.
func (m *model) obey(t *rapid.T) decision {
	m.Now = m.Now.Add(time.Second)
	d := next(m.view)
	switch d.Do {
	case actMount:
		if m.Unmounted || m.Mounted {
			t.Fatalf("mounted again: %+v", m.view)
		}
		m.Mounted = true
	case actStart:
		m.checkStart(t, d.Start)
		for _, name := range d.Start {
			c := m.find(name)
			*c = containerView{Name: name, Phase: workload.Running, Alive: true, Pause: c.Pause}
		}
	case actStop:
		for i := range m.all() {
			m.end(m.all()[i], 143)
		}
	case actUnmount:
		if m.alive() {
			t.Fatalf("the volumes of running containers are unmounted: %+v", m.view)
		}
		m.Mounted, m.Unmounted = false, true
	case actRemove:
		if m.alive() || !m.Unmounted {
			t.Fatalf("removed too early: %+v", m.view)
		}
		m.removed = true
	}
	if m.endPhase() != "" && !m.Deleting {
		m.Finished = true
	}
	return d
}

func (m *model) checkStart(t *rapid.T, names []string) {
	if m.Deleting || m.Finished || !m.Mounted || m.Unmounted {
		t.Fatalf("started in the wrong state: %+v", m.view)
	}
	for _, name := range names {
		if m.find(name).Alive {
			t.Fatalf("%s was started twice", name)
		}
		for i, init := range m.Init {
			if init.Name == name && (len(names) > 1 || i > 0 && !m.Init[i-1].succeeded()) {
				t.Fatalf("init container %s is out of turn: %+v", name, m.view)
			}
		}
	}
}

func (m *model) all() []*containerView {
	var all []*containerView
	for i := range m.Init {
		all = append(all, &m.Init[i])
	}
	for i := range m.Main {
		all = append(all, &m.Main[i])
	}
	return all
}

func (m *model) find(name string) *containerView {
	for _, c := range m.all() {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func (m *model) end(c *containerView, code int) {
	if c.Alive {
		c.Alive, c.Phase = false, workload.Exited
		c.Ended = &workload.Ended{ExitCode: code, Started: m.Now.Add(-time.Second), Finished: m.Now}
	}
}

// hostRestarts: the next host does not know the mounts.
func (m *model) hostRestarts() { m.Mounted, m.Unmounted = false, false }

func (m *model) boots() {
	m.hostRestarts()
	for _, c := range m.all() {
		m.end(c, 137)
		c.OtherBoot = c.Phase != ""
	}
}

func TestNext_convergesAfterRandomEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{view: view{Now: testNow(), Policy: rapid.SampledFrom([]corev1.RestartPolicy{
			corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever,
		}).Draw(t, "policy"), Main: list(never("m"), never("n"))}}
		if rapid.Bool().Draw(t, "init") {
			m.Init = list(never("i"), never("j"))
		}
		names := []string{"i", "j", "m", "n"}
		for range rapid.IntRange(0, 40).Draw(t, "events") {
			switch rapid.SampledFrom([]string{"obey", "obey", "obey", "end", "restart", "boot", "wait"}).Draw(t, "event") {
			case "obey":
				m.obey(t)
			case "end":
				if c := m.find(rapid.SampledFrom(names).Draw(t, "container")); c != nil {
					m.end(c, rapid.IntRange(0, 1).Draw(t, "code"))
				}
			case "restart":
				m.hostRestarts()
			case "boot":
				m.boots()
			case "wait":
				m.Now = m.Now.Add(time.Hour)
			}
		}
		m.Deleting = true
		for range 8 {
			if m.obey(t); m.removed {
				return
			}
		}
		t.Fatalf("it does not go: %+v", m.view)
	})
}

func TestNextPause_growsWithinABoot(t *testing.T) {
	ended := &workload.Ended{ExitCode: 1, Started: testNow(), Finished: testNow().Add(time.Second)}
	for name, c := range map[string]struct {
		last workload.State
		want time.Duration
	}{
		"the first attempt":             {workload.State{}, 0},
		"after the first failure":       {workload.State{BootID: "b", Phase: workload.Exited, Ended: ended}, firstPause},
		"after the second":              {workload.State{BootID: "b", Phase: workload.Exited, Ended: ended, Pause: firstPause}, 2 * firstPause},
		"an attempt that did not run":   {workload.State{BootID: "b", Phase: workload.Starting, Pause: firstPause}, firstPause},
		"after a reboot":                {workload.State{BootID: "a", Phase: workload.Exited, Ended: ended, Pause: time.Minute}, 0},
		"after a reboot while it began": {workload.State{BootID: "a", Phase: workload.Starting, Pause: time.Minute}, 0},
	} {
		if got := nextPause(c.last, "b"); got != c.want {
			t.Errorf("%s: the next attempt waits %s; want %s", name, got, c.want)
		}
	}
}
