package windows

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/internal/node"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

// model is what the calls so far should have come to.
type model struct {
	attached map[string]bool
	staged   map[string]string // by staging path: the volume
	links    map[string]string // by target: the staging path
	written  map[string]bool   // volumes with a file
	size     map[string]int64  // of disks that are attached
}

func (m *model) isStaged(volume string) bool {
	for _, v := range m.staged {
		if v == volume {
			return true
		}
	}
	return false
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
	return nil
}

func (m *model) unstage(volume, path string) error {
	if m.staged[path] != "" && m.staged[path] != volume {
		return backend.ErrPrecondition
	}
	delete(m.staged, path)
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

// slow are the habits of a Windows that is late with everything, by a random part.
func slow(r *rapid.T) windows.Options {
	late := rapid.SampledFrom([]time.Duration{0, time.Millisecond, 3 * time.Millisecond})
	return windows.Options{
		VolumeDelay: late.Draw(r, "volumes arrive after"), ListDelay: late.Draw(r, "volumes are listed after"),
		FormatDelay: late.Draw(r, "formats show after"), UsableLag: rapid.IntRange(0, 2).Draw(r, "updates of a GPT"),
		DeletePending: rapid.Bool().Draw(r, "removals are pending"),
		NumberGap:     rapid.SampledFrom([]uint32{0, 99}).Draw(r, "numbers between two disks"),
	}
}

// Whatever is called in whatever order, with the process dying and calls of
// Windows failing in between: each call answers as the model does, no file is
// lost, and no disk stays online that is staged nowhere.
func TestModel_anyOrderOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { rapid.Check(noDeadline{t}, anyOrderOfCalls(t)) })
}

// noDeadline hides the deadline of a test, which rapid asks for and which a bubble
// does not have.
type noDeadline struct{ testing.TB }

func anyOrderOfCalls(t *testing.T) func(*rapid.T) {
	return func(r *rapid.T) {
		m := newMachineWith(t, slow(r))
		m.shortenWaits()
		m.hideInterfaces(r)
		w := &model{attached: map[string]bool{}, staged: map[string]string{}, links: map[string]string{},
			written: map[string]bool{}, size: map[string]int64{}}
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
				v := volume.Draw(r, "volume")
				if w.attached[v] {
					return
				}
				_, err := m.AddDisk(windows.DiskSpec{
					Serial: v, Size: gibibyte, Bus: win32.BusSAS, Offline: true, ReadOnly: true,
					ArrivesAfter: rapid.SampledFrom([]time.Duration{0, 2 * time.Millisecond}).Draw(r, "the disk arrives after"),
					NeedsRescan:  rapid.Bool().Draw(r, "the disk needs a rescan"),
				})
				m.must(err)
				w.attached[v], w.size[v] = true, gibibyte
			},
			"reattach": func(r *rapid.T) { // under another number
				v := volume.Draw(r, "volume")
				for _, disk := range m.State().Disks {
					if strings.TrimSpace(disk.Serial) == v && disk.Present && !w.isStaged(v) {
						_, err := m.MoveDisk(disk.Number)
						m.must(err)
					}
				}
			},
			"stage": func(r *rapid.T) {
				v, p := volume.Draw(r, "volume"), staging.Draw(r, "staging")
				if w.isStaged(v) && w.staged[p] == "" {
					return // no orchestrator stages a volume at two paths
				}
				compare("stage "+v, m.engine.Stage(t.Context(), stageOf(v, p)), w.stage(v, p))
				if w.staged[p] == v && !w.written[v] {
					m.must(m.WriteFile(p+`\data-of-`+v, 512))
					w.written[v] = true
				}
			},
			"unstage": func(r *rapid.T) {
				v, p := volume.Draw(r, "volume"), staging.Draw(r, "staging")
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
			"scan": func(r *rapid.T) { // another program has something open when it is removed
				v, p := volume.Draw(r, "volume"), staging.Draw(r, "staging")
				if w.staged[p] != "" && w.staged[p] != v {
					return
				}
				file, err := m.Open(p, true)
				if err != nil {
					return
				}
				err = m.engine.Unstage(t.Context(), v, p)
				file.Close()
				if err != nil {
					err = m.engine.Unstage(t.Context(), v, p)
				}
				compare("unstage again "+v, err, w.unstage(v, p))
			},
			"grow": func(r *rapid.T) {
				v, p := volume.Draw(r, "volume"), staging.Draw(r, "staging")
				if w.staged[p] != v || v == "" {
					return
				}
				size := w.size[v] + rapid.Int64Range(1, 4).Draw(r, "by")*(gibibyte/8)
				m.must(m.GrowDisk(m.numberOf(v), size))
				w.size[v] = size
				_, err := m.engine.Expand(t.Context(), node.ExpandRequest{VolumeID: v, VolumePath: p, Range: backend.SizeRange{Required: size}})
				compare("expand "+v, err, nil)
				if stats, err := m.engine.Stats(t.Context(), v, p, ""); err != nil || stats.Bytes.Total < size-32*mebibyte {
					r.Fatalf("after growth to %d: %+v, %v", size, stats, err)
				}
			},
			"fail": func(r *rapid.T) { // calls of Windows, in a call that is then repeated
				v, p := volume.Draw(r, "volume"), staging.Draw(r, "staging")
				fault := m.Inject(windows.Fault{
					Call:   rapid.SampledFrom([]string{"", "Devices.OpenInterface", "IOCTL_STORAGE_QUERY_PROPERTY"}).Draw(r, "call"),
					At:     rapid.IntRange(1, 30).Draw(r, "at"),
					Times:  rapid.IntRange(1, 4).Draw(r, "times"),
					Action: windows.Fail, Errno: win32.ErrorGenFailure,
				})
				err := m.engine.Unstage(t.Context(), v, p)
				fault.Remove()
				if err != nil {
					err = m.engine.Unstage(t.Context(), v, p)
				}
				compare("unstage again "+v, err, w.unstage(v, p))
			},
			"give up": func(r *rapid.T) { // a Stage that dies is undone and not repeated
				v, p := volume.Draw(r, "volume"), staging.Draw(r, "staging")
				if w.isStaged(v) || w.staged[p] != "" {
					return
				}
				fault := m.Inject(windows.Fault{Changing: true, At: rapid.IntRange(1, 12).Draw(r, "at"), Times: 1, Action: windows.DieAfter})
				_ = m.engine.Stage(t.Context(), stageOf(v, p))
				fault.Remove()
				m.start()
				m.shortenWaits()
				compare("unstage "+v, m.engine.Unstage(t.Context(), v, p), w.unstage(v, p))
			},
			"die": func(r *rapid.T) { // in a call that is then repeated
				v, p := volume.Draw(r, "volume"), staging.Draw(r, "staging")
				if w.isStaged(v) && w.staged[p] == "" {
					return
				}
				fault := m.Inject(windows.Fault{Changing: true, At: rapid.IntRange(1, 8).Draw(r, "at"), Times: 1, Action: windows.DieAfter})
				_ = m.engine.Stage(t.Context(), stageOf(v, p))
				fault.Remove()
				m.start()
				m.shortenWaits()
				compare("stage again "+v, m.engine.Stage(t.Context(), stageOf(v, p)), w.stage(v, p))
			},
		})
	}
}

func (m *machine) shortenWaits() {
	m.engine.wait, m.engine.interval = 5*time.Millisecond, time.Millisecond
}

// hideInterfaces has Windows list no interfaces of disks, in some runs.
func (m *machine) hideInterfaces(r *rapid.T) {
	if rapid.Bool().Draw(r, "no interfaces of disks") {
		m.Inject(windows.Fault{Call: "Devices.Interfaces", Action: windows.Fail, Errno: win32.ErrorGenFailure})
	}
}

// agrees compares the machine with the model.
func (m *machine) agrees(r *rapid.T, w *model) {
	if err := m.Check(); err != nil {
		r.Fatal(err)
	}
	if lost := m.Losses(); len(lost) > 0 {
		r.Fatalf("destroyed: %v", lost)
	}
	for _, disk := range m.State().Disks {
		if volume := strings.TrimSpace(disk.Serial); w.attached[volume] && disk.Present && disk.Online && !w.isStaged(volume) {
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
