package local

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend/guard"
	"github.com/holdfast-csi/holdfast/internal/failpoint/syscallfault"
	"github.com/holdfast-csi/holdfast/simulation/powercut"
	"github.com/holdfast-csi/holdfast/simulation/powercut/powertest"
)

var powerFlags = powertest.NewFlags()

// TestRecordedDisk is the process of a disk.
func TestRecordedDisk(t *testing.T) { must(t, powercut.Serve()) }

// poolLab is a pool on a recorded disk, and an operation on it.
type poolLab struct {
	*powertest.Lab
	facts labFacts
}

// labFacts are saved with a recording, so that one state of it can be replayed alone.
type labFacts struct {
	FSType, Operation string
	Formats           bool
	BeforeList, After []string          // listings
	Before            map[string]string // of each entry, before the operation
	Acknowledged      map[string]string // and after it
}

// acknowledged is the mark at which the operation returned.
const acknowledged = "the acknowledgement"

func newPoolLab(t testing.TB, fsType string) *poolLab {
	t.Helper()
	return &poolLab{Lab: powertest.New(t, fsType, powerFlags)}
}

func (l *poolLab) poolDir() string { return filepath.Join(l.Mount, "pool") }

// record runs the operation on a new filesystem. run calls its argument, which is the
// start and the operation.
func (l *poolLab) record(t *testing.T, operation string, run func(func())) *powercut.Recording {
	t.Helper()
	l.Format(t)
	defer l.Unmount(t)
	w := newWorld(t, l.Mount, operation)
	defer w.end()
	must(t, os.Rename(w.dir, l.poolDir()))
	w.dir = l.poolDir()
	l.facts = labFacts{FSType: l.FSType, Operation: operation, Formats: w.formats, BeforeList: w.before, Before: factsOf(w)}

	l.Begin(t)
	run(func() {
		w.open(nil)
		must(t, w.scenario.act(t.Context(), w.pool, guard.New(w.pool)))
		l.Mark(t, acknowledged)
	})
	w.shut()
	recording := l.Stop(t)

	w.open(nil)
	l.facts.After, l.facts.Acknowledged = w.listing(), factsOf(w)
	w.wantEnd(l.facts.After)
	w.shut()
	var err error
	recording.Facts, err = json.Marshal(l.facts)
	must(t, err)
	return recording
}

// The power is cut at each flush of each operation, and with subsets of the writes
// after it. Everything acknowledged must be there, nothing may be half made, and the
// repeated call must succeed.
func TestPowerCut_losesNothingAcknowledged(t *testing.T) {
	t.Parallel()
	if kept := powerFlags.Kept(t); kept != nil {
		l := &poolLab{}
		must(t, json.Unmarshal(kept.Facts, &l.facts))
		if _, isOther := imageOperations()[l.facts.Operation]; isOther {
			return
		}
		l.Lab = powertest.New(t, l.facts.FSType, powerFlags)
		must(t, l.Disk.Load(kept))
		l.WantSafe(t, kept, "local "+l.facts.Operation, powerFlags.Choice(1), l.check)
		return
	}
	for _, fsType := range []string{"xfs", "ext4", "btrfs"} {
		for _, operation := range slices.Sorted(maps.Keys(scenarios())) {
			t.Run(fsType+" "+operation, func(t *testing.T) {
				t.Parallel()
				l := newPoolLab(t, fsType)
				recording := l.record(t, operation, func(act func()) { act() })
				l.WantSafe(t, recording, "local "+operation, powerFlags.Choice(1), l.check)
			})
		}
	}
}

// Defects are planted: fsync(2) of some files or directories succeeds and does nothing,
// or the disk ignores flushes. The states must show each of them.
func TestPowerCut_findsPlantedDefects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fsType, operation string
		unsynced          func(path string) bool // of an fsync that does nothing
		lies              bool                   // the disk ignores flushes
	}{
		"no fsync of a record before its rename":    {"xfs", "create thin", isName(volumeFile + ".tmp"), false},
		"no fsync of a directory before the answer": {"xfs", "create thin", isDirectoryOf(volumesDir), false},
		"no fsync of copied data before the record": {"ext4", "snapshot", isName(dataFile), false},
		"no fsync of the directories of a deletion": {"ext4", "delete volume", isAnyName(volumesDir, trashDir), false},
		"no fsync of a group's directory":           {"xfs", "group", isDirectoryOf(groupsDir), false},
		"no fsync of anything of an expansion":      {"btrfs", "expand thin", isAnyName(volumeFile+".tmp", idOf(volumePrefix, "one"), dataFile), false},
		"a disk that ignores flushes":               {"xfs", "create thin", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newPoolLab(t, c.fsType)
			skipped := 0
			recording := l.record(t, c.operation, func(act func()) {
				if c.unsynced == nil {
					act()
					return
				}
				_, err := syscallfault.Run([]string{l.Mount}, func(call syscallfault.Call) unix.Errno {
					if call.Name == "fsync" && c.unsynced(call.Path) {
						skipped++
						return syscallfault.Pretend
					}
					return 0
				}, act)
				must(t, err)
				if skipped == 0 {
					t.Fatal("no fsync was left out: the defect was not planted")
				}
			})
			if c.lies {
				recording = recording.WithoutFlushes(func(int) bool { return true })
			}
			found, tried := l.FirstUnsafe(t, recording, powercut.Choice{PerFlush: 4, Seed: 1}, l.check)
			if found == "" {
				t.Fatalf("%d states do not show the defect", tried)
			}
			t.Logf("left out %d fsyncs; found by state %d of %d writes and %d flushes: %.300s", skipped, tried, recording.Writes(), recording.Flushes(), found)
		})
	}
}

func isName(name string) func(string) bool { return isAnyName(name) }

func isAnyName(names ...string) func(string) bool {
	return func(path string) bool { return slices.Contains(names, filepath.Base(path)) }
}

// isDirectoryOf matches the directories of the entries in one directory of the pool.
func isDirectoryOf(dir string) func(string) bool {
	return func(path string) bool { return filepath.Base(filepath.Dir(path)) == dir }
}
