package winnode

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32/simulated"
)

// model is what the calls so far should have come to.
type model struct {
	attached map[string]bool
	staged   map[string]string // by staging path: the volume
	links    map[string]string // by target: the staging path
	written  map[string]bool   // volumes with a file
	begun    map[string]string // by staging path: the volume of a Stage that did not succeed
}

// mayBeOnline reports whether a call can have left the volume's disk online.
func (m *model) mayBeOnline(volume string) bool {
	return m.isStaged(volume) || slices.Contains(slices.Collect(maps.Values(m.begun)), volume)
}

func (m *model) isStaged(volume string) bool {
	for _, v := range m.staged {
		if v == volume {
			return true
		}
	}
	return false
}

// isOthers reports whether a Stage of another volume has begun at the path.
func (m *model) isOthers(volume, path string) bool {
	return m.begun[path] != "" && m.begun[path] != volume
}

// stage is the error that staging should give.
func (m *model) stage(volume, path string) error {
	switch {
	case m.staged[path] != "" && m.staged[path] != volume:
		return backend.ErrPrecondition
	case !m.attached[volume]:
		return backend.ErrUnavailable
	}
	m.staged[path] = volume
	delete(m.begun, path)
	return nil
}

func (m *model) unstage(volume, path string) error {
	if m.staged[path] != "" && m.staged[path] != volume {
		return backend.ErrPrecondition
	}
	delete(m.staged, path)
	if m.begun[path] == volume {
		delete(m.begun, path)
	}
	return nil
}

func (m *model) publish(volume, path, target string) error {
	at, linked := m.links[target]
	switch {
	case m.staged[path] != volume:
		return backend.ErrPrecondition
	case linked && m.staged[at] == volume && at != path:
		return backend.ErrExists
	case linked && m.staged[at] != "" && m.staged[at] != volume:
		return backend.ErrPrecondition
	}
	m.links[target] = path
	return nil
}

func (m *model) unpublish(volume, target string) error {
	if at, linked := m.links[target]; linked && m.staged[at] != "" && m.staged[at] != volume {
		return backend.ErrPrecondition
	}
	delete(m.links, target)
	return nil
}

// Whatever is called in whatever order, with the process dying and calls of
// Windows failing in between: each call answers as the model does, no file is
// lost, and no disk stays online that is staged nowhere.
func TestModel_anyOrderOfCalls(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := newMachine(t)
		m.impatient()
		w := &model{attached: map[string]bool{}, staged: map[string]string{}, links: map[string]string{}, written: map[string]bool{}, begun: map[string]string{}}
		volume := rapid.SampledFrom([]string{volA, volB})
		staging := rapid.SampledFrom([]string{stagingA, stagingB})
		target := rapid.SampledFrom([]string{targetA, targetA2})
		compare := func(what string, got, want error) {
			if (got == nil) != (want == nil) || !errors.Is(got, want) {
				r.Fatalf("%s: %v; want %v", what, got, want)
			}
		}
		r.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { m.agrees(r, w) },
			"attach": func(r *rapid.T) {
				if v := volume.Draw(r, "volume"); !w.attached[v] {
					m.attach(v)
					w.attached[v] = true
				}
			},
			"reattach": func(r *rapid.T) { // under another number
				if v := volume.Draw(r, "volume"); w.attached[v] && !w.isStaged(v) {
					_, err := m.MoveDisk(m.numberOf(v))
					m.must(err)
				}
			},
			"stage": func(r *rapid.T) {
				v, p := volume.Draw(r, "volume"), staging.Draw(r, "staging")
				if w.isStaged(v) && w.staged[p] == "" || w.isOthers(v, p) {
					return // no orchestrator stages a volume at two paths, or two at one
				}
				compare("stage "+v, m.engine.Stage(t.Context(), stageOf(v, p)), w.stage(v, p))
				if w.staged[p] == v && !w.written[v] {
					m.must(m.WriteFile(p+`\data-of-`+v, 512))
					w.written[v] = true
				}
			},
			"unstage": func(r *rapid.T) {
				v, p := volume.Draw(r, "volume"), staging.Draw(r, "staging")
				if w.isOthers(v, p) {
					return
				}
				compare("unstage "+v, m.engine.Unstage(t.Context(), v, p), w.unstage(v, p))
			},
			"publish": func(r *rapid.T) {
				v, p, at := volume.Draw(r, "volume"), staging.Draw(r, "staging"), target.Draw(r, "target")
				compare("publish "+v, m.engine.Publish(t.Context(), publishOf(v, p, at)), w.publish(v, p, at))
			},
			"unpublish": func(r *rapid.T) {
				v, at := volume.Draw(r, "volume"), target.Draw(r, "target")
				compare("unpublish "+v, m.engine.Unpublish(t.Context(), v, at), w.unpublish(v, at))
			},
			"fail": func(r *rapid.T) { // calls of Windows, in a call that is then repeated
				v, p := volume.Draw(r, "volume"), staging.Draw(r, "staging")
				if w.isOthers(v, p) {
					return
				}
				fault := m.Inject(simulated.Fault{
					Call:   rapid.SampledFrom([]string{"", "Devices.OpenInterface", "IOCTL_STORAGE_QUERY_PROPERTY"}).Draw(r, "call"),
					At:     rapid.IntRange(1, 30).Draw(r, "at"),
					Times:  rapid.IntRange(1, 4).Draw(r, "times"),
					Action: simulated.Fail, Errno: win32.ErrorGenFailure,
				})
				err := m.engine.Unstage(t.Context(), v, p)
				fault.Remove()
				if err != nil {
					err = m.engine.Unstage(t.Context(), v, p)
				}
				compare("unstage again "+v, err, w.unstage(v, p))
			},
			"give up": func(r *rapid.T) { // a Stage that dies and is not repeated
				v, p := volume.Draw(r, "volume"), staging.Draw(r, "staging")
				if w.mayBeOnline(v) || w.staged[p] != "" || w.begun[p] != "" {
					return
				}
				fault := m.Inject(simulated.Fault{Changing: true, At: rapid.IntRange(1, 8).Draw(r, "at"), Times: 1, Action: simulated.DieAfter})
				w.begun[p] = v
				if m.engine.Stage(t.Context(), stageOf(v, p)) == nil {
					compare("stage "+v, nil, w.stage(v, p))
				}
				fault.Remove()
				m.start()
				m.impatient()
			},
			"die": func(r *rapid.T) { // in a call that is then repeated
				v, p := volume.Draw(r, "volume"), staging.Draw(r, "staging")
				if w.isStaged(v) && w.staged[p] == "" || w.isOthers(v, p) {
					return
				}
				fault := m.Inject(simulated.Fault{Changing: true, At: rapid.IntRange(1, 8).Draw(r, "at"), Times: 1, Action: simulated.DieAfter})
				_ = m.engine.Stage(t.Context(), stageOf(v, p))
				fault.Remove()
				m.start()
				m.impatient()
				compare("stage again "+v, m.engine.Stage(t.Context(), stageOf(v, p)), w.stage(v, p))
			},
		})
	})
}

func (m *machine) impatient() { m.engine.wait, m.engine.look = 5*time.Millisecond, time.Millisecond }

// agrees compares the machine with the model.
func (m *machine) agrees(r *rapid.T, w *model) {
	if err := m.Check(); err != nil {
		r.Fatal(err)
	}
	if lost := m.Losses(); len(lost) > 0 {
		r.Fatalf("destroyed: %v", lost)
	}
	for _, disk := range m.State().Disks {
		if volume := strings.TrimSpace(disk.Serial); w.attached[volume] && disk.Online && !w.mayBeOnline(volume) {
			r.Fatalf("the disk of %s is online, and staged nowhere", volume)
		}
	}
	for path, volume := range w.staged {
		if w.written[volume] && !m.Exists(path+`\data-of-`+volume) {
			r.Fatalf("%s does not show the file of %s", path, volume)
		}
	}
	for _, target := range []string{targetA, targetA2} {
		at, linked := w.links[target]
		if _, err := m.Lstat(target); (err == nil) != linked {
			r.Fatalf("%s is there: %t; want %t", target, err == nil, linked)
		}
		if volume := w.staged[at]; linked && w.written[volume] && !m.Exists(target+`\data-of-`+volume) {
			r.Fatalf("%s does not show the file of %s", target, volume)
		}
	}
}
