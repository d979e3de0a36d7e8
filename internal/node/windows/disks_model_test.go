package windows

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

const (
	volC     = "vol-c"
	stagingC = kubeletDir + `\plugins\kubernetes.io\csi\x\c\globalmount`
)

// Stage and Unstage at several paths, which volumes share, on disks that are blank,
// contain other data than the driver's, or fail; a call of Windows fails, or the
// process dies at it. Each result may be an error; check has the invariants.
func TestModel_foreignDisksAndSeveralPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { rapid.Check(noDeadline{t}, foreignDisksAndSeveralPaths(t)) })
}

// shelf is a machine with disks of all kinds, and the calls so far.
type shelf struct {
	*machine
	r       *rapid.T
	present map[string]bool            // by serial number: disks of volumes
	foreign map[string]bool            // those of them with other data than the driver's
	tried   map[string]map[string]bool // by volume and path: a Stage began, and no Unstage has answered OK since
	others  map[string]windows.StateDisk
}

func foreignDisksAndSeveralPaths(t *testing.T) func(*rapid.T) {
	return func(r *rapid.T) {
		s := &shelf{machine: newMachineWith(t, slow(r)), r: r, present: map[string]bool{}, foreign: map[string]bool{},
			tried: map[string]map[string]bool{}, others: map[string]windows.StateDisk{}}
		s.shortenWaits()
		s.hideInterfaces(r)
		volume := rapid.SampledFrom([]string{volA, volB, volC})
		anywhere := rapid.SampledFrom([]string{stagingA, stagingB, stagingC})
		pair := func(r *rapid.T) (v, p string) { return volume.Draw(r, "volume"), anywhere.Draw(r, "path") }
		r.Repeat(map[string]func(*rapid.T){
			"": func(r *rapid.T) { s.r = r; s.check() },
			"attach": func(r *rapid.T) {
				s.attachAny(r, volume.Draw(r, "volume"))
			},
			"attach another's": func(r *rapid.T) { s.attachOther(r) },
			"reattach": func(r *rapid.T) {
				v := volume.Draw(r, "volume")
				if s.present[v] && len(s.mountedAt(v)) == 0 {
					_, err := s.MoveDisk(s.numberOf(v))
					s.must(err)
				}
			},
			"stage": func(r *rapid.T) {
				_ = s.stage(pair(r))
			},
			"unstage": func(r *rapid.T) {
				s.unstage(pair(r))
			},
			"stage with a fault": func(r *rapid.T) {
				v, p := pair(r)
				s.tryAt(v, p)
				s.during(r, func() error { return s.stage(v, p) })
			},
			"unstage with a fault": func(r *rapid.T) {
				v, p := pair(r)
				s.during(r, func() error { s.unstage(v, p); return nil })
			},
		})
		s.endsClean()
	}
}

// contents are the kinds of data on the disk of a volume that no Stage may change.
func contents() map[string]windows.DiskSpec {
	return map[string]windows.DiskSpec{
		"noise":            {Noise: true},
		"a file's bytes":   {Bytes: map[int64][]byte{gibibyte - 512: {1}}},
		"an empty GPT":     {Style: "gpt", Bytes: map[int64][]byte{17 << 20: {1, 2, 3}}},
		"FAT32":            {Style: "data", FileSystem: "FAT32"},
		"damaged contents": {Style: "data", Noise: true},
	}
}

// attachAny attaches the disk of a volume: blank, or holding something.
func (s *shelf) attachAny(r *rapid.T, v string) {
	if s.present[v] {
		return
	}
	kinds := slices.Sorted(maps.Keys(contents()))
	kind := rapid.SampledFrom(append([]string{"blank", "blank", "blank"}, kinds...)).Draw(r, "content")
	spec := contents()[kind]
	spec.Serial, spec.Size, spec.Bus, spec.Offline, spec.ReadOnly = v, gibibyte, win32.BusSAS, true, true
	_, err := s.AddDisk(spec)
	s.must(err)
	s.present[v], s.foreign[v] = true, kind != "blank"
}

// attachOther attaches a disk that belongs to no volume: it may not change at all.
func (s *shelf) attachOther(r *rapid.T) {
	if len(s.others) == 2 {
		return
	}
	serial := fmt.Sprintf("other-%d", len(s.others))
	spec := contents()[rapid.SampledFrom(slices.Sorted(maps.Keys(contents()))).Draw(r, "content")]
	spec.Serial, spec.Size, spec.Bus = serial, gibibyte, win32.BusSAS
	if rapid.Bool().Draw(r, "it fails") {
		spec.Broken = win32.ErrorIODevice
	}
	_, err := s.AddDisk(spec)
	s.must(err)
	s.others[serial] = s.diskOf(serial)
}

// during lets a call of Windows fail, answer falsely or kill the process.
func (s *shelf) during(r *rapid.T, call func() error) {
	fault := windows.Fault{
		Changing: rapid.Bool().Draw(r, "a change"), At: rapid.IntRange(1, 25).Draw(r, "at"),
		Times: rapid.IntRange(1, 3).Draw(r, "times"), Errno: win32.ErrorIODevice,
		Action: rapid.SampledFrom([]windows.Action{windows.Fail, windows.FailAfter, windows.DieBefore, windows.DieAfter}).Draw(r, "action"),
	}
	injected := s.Inject(fault)
	_ = call()
	injected.Remove()
	if fault.Action == windows.DieBefore || fault.Action == windows.DieAfter {
		s.start()
		s.shortenWaits()
	}
}

func (s *shelf) tryAt(v, p string) {
	if s.tried[v] == nil {
		s.tried[v] = map[string]bool{}
	}
	s.tried[v][p] = true
}

func (s *shelf) stage(v, p string) error {
	s.tryAt(v, p)
	err := s.engine.Stage(s.t.Context(), stageOf(v, p))
	if err == nil && s.foreign[v] {
		s.r.Fatalf("staging %s, which has other data than the driver's, succeeded", v)
	}
	if err == nil && !slices.Contains(s.mountedAt(v), p) {
		s.r.Fatalf("staging %s answered OK; it is mounted at %q and not at %s", v, s.mountedAt(v), p)
	}
	return err
}

func (s *shelf) unstage(v, p string) {
	err := s.engine.Unstage(s.t.Context(), v, p)
	if err != nil {
		return
	}
	delete(s.tried[v], p)
	if slices.Contains(s.mountedAt(v), p) || s.Exists(p) && !s.triedByAnother(v, p) {
		s.r.Fatalf("unstaging %s answered OK, and %s still exists", v, p)
	}
}

func (s *shelf) triedByAnother(v, p string) bool {
	for other, paths := range s.tried {
		if other != v && paths[p] {
			return true
		}
	}
	return false
}

// mountedAt are the paths that show the volume.
func (s *shelf) mountedAt(v string) (at []string) {
	if !s.present[v] {
		return nil
	}
	for _, volume := range s.diskOf(v).Volumes {
		for _, p := range []string{stagingA, stagingB, stagingC} {
			if link, err := s.Readlink(p); err == nil && sameVolume(strings.Replace(link.Target(), `\??\`, `\\?\`, 1), volume.Name) {
				at = append(at, p)
			}
		}
	}
	return at
}

// check checks the invariants after each call, with any result.
func (s *shelf) check() {
	if err := s.Check(); err != nil {
		s.r.Fatal(err)
	}
	if lost := s.Losses(); len(lost) > 0 {
		s.r.Fatalf("destroyed: %v", lost)
	}
	for serial, before := range s.others {
		if diff := cmp.Diff(before, s.diskOf(serial)); diff != "" {
			s.r.Fatalf("the disk %s belongs to no volume and was changed (-before +after):\n%s", serial, diff)
		}
	}
	for v := range s.present {
		if disk := s.diskOf(v); disk.Present && disk.Online && len(s.tried[v]) == 0 {
			s.r.Fatalf("the disk of %s is online, and every Unstage of it answered OK", v)
		}
		for _, p := range s.mountedAt(v) {
			if !s.diskOf(v).Online {
				s.r.Fatalf("the disk of %s is offline, and mounted at %s", v, p)
			}
			if !s.tried[v][p] {
				s.r.Fatalf("%s is mounted at %s, where it was not staged", v, p)
			}
		}
	}
}

// endsClean takes away the disks that fail, and unstages what was staged: then
// nothing may be left.
func (s *shelf) endsClean() {
	for _, serial := range slices.Sorted(maps.Keys(s.others)) {
		s.must(s.RemoveDisk(s.numberOf(serial)))
	}
	for range 2 { // once another volume is gone from the path
		for _, v := range slices.Sorted(maps.Keys(s.tried)) {
			for _, p := range slices.Sorted(maps.Keys(s.tried[v])) {
				err := s.engine.Unstage(s.t.Context(), v, p)
				if err == nil {
					delete(s.tried[v], p)
				} else if !errors.Is(err, backend.ErrPrecondition) || !s.triedByAnother(v, p) {
					s.r.Fatalf("unstage %s at %s when nothing fails: %v", v, p, err)
				}
			}
		}
	}
	for v := range s.present {
		if disk := s.diskOf(v); disk.Online || len(s.tried[v]) > 0 || len(s.mountedAt(v)) > 0 {
			s.r.Fatalf("%s is not unstaged when nothing fails: online %t, tried %v, mounted at %q", v, disk.Online, s.tried[v], s.mountedAt(v))
		}
	}
}
