package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/failpoint/syscallfault"
	"github.com/holdfast-csi/holdfast/simulation/powercut"
	"github.com/holdfast-csi/holdfast/simulation/powercut/powertest"
)

var powerFlags = powertest.NewFlags()

// TestRecordedDisk is the process of a disk.
func TestRecordedDisk(t *testing.T) {
	if err := powercut.Serve(); err != nil {
		t.Fatal(err)
	}
}

// storeLab is a store on a recorded disk, and a list of steps.
type storeLab struct {
	*powertest.Lab
	facts storeFacts
}

// storeFacts are saved with a recording.
type storeFacts struct {
	FSType, Name string
	// Records are those after each step; Backups is the version of the newest backup
	// then, 0 without one.
	Records []map[string]string
	Backups []uint64
	// Before are those before the first step; nil if there was no store.
	Before map[string]string
}

// storeStep is one acknowledged call.
type storeStep func(*Store) error

func putClaim(i int) storeStep {
	return func(s *Store) error {
		name := fmt.Sprintf("c%02d", i)
		return s.Update(func(tx *Tx) error {
			meta := metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: map[string]string{"a": strings.Repeat(name, 40*i)}}
			return errors.Join(tx.Claims().Put("default/"+name, &corev1.PersistentVolumeClaim{ObjectMeta: meta}),
				tx.Uses().Put(name, &VolumeUse{Name: name, Driver: "d", Handle: name}))
		})
	}
}

func dropClaim(i int) storeStep {
	return func(s *Store) error {
		return s.Update(func(tx *Tx) error { return tx.Claims().Delete(fmt.Sprintf("default/c%02d", i)) })
	}
}

func putSomeSecret(s *Store) error {
	return s.Update(func(tx *Tx) error {
		return tx.Secrets().Put("default/s", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default"}, Data: map[string][]byte{"k": []byte("v")}})
	})
}

func backUp(s *Store) error { return s.Backup() }

// life is changes, and more backups than are kept.
func life() []storeStep {
	nothing := func(*Store) error { return nil } // the creation of the store
	return []storeStep{
		nothing, putClaim(1), putClaim(2), backUp, dropClaim(1), putSomeSecret, backUp, putClaim(3), backUp, putClaim(30), dropClaim(2),
		backUp, putClaim(4), backUp,
	}
}

func stepMark(i int) string { return "step " + strconv.Itoa(i) }

func (l *storeLab) root() string { return filepath.Join(l.Mount, "root") }

// record opens the store, runs the steps and marks the end of each.
func (l *storeLab) record(t *testing.T, name string, prepare func(root string), steps []storeStep, run func(func())) *powercut.Recording {
	t.Helper()
	l.Format(t)
	defer l.Unmount(t)
	l.facts = storeFacts{FSType: l.FSType, Name: name}
	if err := os.Mkdir(l.root(), 0o700); err != nil {
		t.Fatal(err)
	}
	prepare(l.root())
	l.Begin(t)
	run(func() {
		s, err := Open(l.root())
		if err != nil {
			t.Error(err)
			return
		}
		var backup uint64
		for i, step := range steps {
			before := backup
			if err := step(s); err != nil {
				t.Errorf("step %d: %v", i, err)
			}
			l.Mark(t, stepMark(i))
			if generations, err := Generations(l.root(), Options{}); err == nil && len(generations) > 0 {
				backup = max(before, generations[0].Version)
			}
			l.facts.Records, l.facts.Backups = append(l.facts.Records, contentsOf(t, s)), append(l.facts.Backups, backup)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	recording := l.Stop(t)
	var err error
	if recording.Facts, err = json.Marshal(l.facts); err != nil {
		t.Fatal(err)
	}
	return recording
}

// check opens the store of a state: it has the changes that were acknowledged, and at
// most the one after them.
func (l *storeLab) check(t testing.TB, state powercut.State) {
	done := -1
	for i := range l.facts.Records {
		if slices.Contains(state.Marks, stepMark(i)) {
			done = i
		}
	}
	if info, err := os.Stat(filepath.Join(l.root(), FileName)); err != nil || info.Size() == 0 {
		if done >= 0 || l.facts.Before != nil {
			t.Fatalf("the store is gone: %v", err)
		}
	} else if report, err := Check(l.root()); done >= 0 && (err != nil || len(report.Problems) > 0) {
		t.Fatalf("the store is damaged: %v, %v", err, report)
	}
	s, err := Open(l.root())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	l.compare(t, s, done)
	l.checkBackups(t, done)
	for _, step := range []storeStep{putClaim(9), backUp, putClaim(10)} {
		if err := step(s); err != nil {
			t.Fatalf("after the start: %v", err)
		}
	}
	now := contentsOf(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(l.root())
	if err != nil {
		t.Fatalf("the second start: %v", err)
	}
	t.Cleanup(func() { _ = again.Close() })
	if diff := cmp.Diff(now, contentsOf(t, again)); diff != "" {
		t.Errorf("the second start changed the store:\n%s", diff)
	}
}

func (l *storeLab) compare(t testing.TB, s *Store, done int) {
	have := contentsOf(t, s)
	allowed := []map[string]string{l.facts.Before}
	if done >= 0 {
		allowed = []map[string]string{l.facts.Records[done]}
	}
	if done+1 < len(l.facts.Records) {
		allowed = append(allowed, l.facts.Records[done+1])
	}
	if !slices.ContainsFunc(allowed, func(records map[string]string) bool { return maps.Equal(records, have) }) {
		t.Errorf("the records are not those after step %d or the next one:\n%s", done, cmp.Diff(allowed[0], have))
	}
}

func (l *storeLab) checkBackups(t testing.TB, done int) {
	generations, err := Generations(l.root(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var newest uint64
	for _, g := range generations {
		if !g.Sound() {
			t.Errorf("the backup %s is damaged: %v", g.Name, g.Problems)
		}
		newest = max(newest, g.Version)
	}
	if done >= 0 && newest < l.facts.Backups[done] {
		t.Errorf("the newest backup has version %d; after step %d one had %d", newest, done, l.facts.Backups[done])
	}
}

func nothingBefore(string) {}

// The power is cut at each flush of the store's creation, of commits, backups and a
// migration, and with subsets of the writes after it: no acknowledged change is lost, no
// other one is there, and no backup is damaged.
func TestPowerCut_losesNoCommit(t *testing.T) {
	t.Parallel()
	if kept := powerFlags.Kept(t); kept != nil {
		l := &storeLab{}
		if err := json.Unmarshal(kept.Facts, &l.facts); err != nil {
			t.Fatal(err)
		}
		l.Lab = powertest.New(t, l.facts.FSType, powerFlags)
		if err := l.Disk.Load(kept); err != nil {
			t.Fatal(err)
		}
		l.WantSafe(t, kept, "host "+l.facts.Name, powerFlags.Choice(3), l.check)
		return
	}
	fsTypes := []string{"xfs", "ext4", "btrfs"}
	if testing.Short() {
		fsTypes = fsTypes[:1] // the race detector adds nothing to the others
	}
	for _, fsType := range fsTypes {
		t.Run(fsType+" store", func(t *testing.T) {
			t.Parallel()
			l := &storeLab{Lab: powertest.New(t, fsType, powerFlags)}
			recording := l.record(t, "store", nothingBefore, life(), func(act func()) { act() })
			l.WantSafe(t, recording, "host store", powerFlags.Choice(3), l.check)
		})
		t.Run(fsType+" migration", func(t *testing.T) {
			t.Parallel()
			l := &storeLab{Lab: powertest.New(t, fsType, powerFlags)}
			old, _, want := busy(t, rand.New(rand.NewPCG(3, 4)), 1)
			recording := l.record(t, "migration", func(root string) {
				l.facts.Before = want
				if err := os.CopyFS(root, os.DirFS(old)); err != nil && !errors.Is(err, fs.ErrExist) {
					t.Fatal(err)
				}
			}, []storeStep{func(*Store) error { return nil }}, func(act func()) { act() })
			l.WantSafe(t, recording, "host migration", powerFlags.Choice(3), l.check)
		})
	}
}

// Defects are planted: a sync of some files or directories does nothing.
func TestPowerCut_findsPlantedDefects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fsType   string
		unsynced func(call syscallfault.Call) bool
	}{
		"no sync of the store": {"xfs", func(c syscallfault.Call) bool { return filepath.Base(c.Path) == FileName }},
		"no sync of the first half of a commit": {"ext4", func() func(c syscallfault.Call) bool {
			odd := false
			return func(c syscallfault.Call) bool {
				if filepath.Base(c.Path) == FileName {
					odd = !odd
					return odd
				}
				return false
			}
		}()},
		"no sync of a backup before its rename": {"xfs", func(c syscallfault.Call) bool { return strings.HasPrefix(filepath.Base(c.Path), BackupName) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &storeLab{Lab: powertest.New(t, c.fsType, powerFlags)}
			skipped := 0
			recording := l.record(t, name, nothingBefore, life(), func(act func()) {
				_, err := syscallfault.Run([]string{l.Mount}, func(call syscallfault.Call) unix.Errno {
					if strings.HasSuffix(call.Name, "sync") && c.unsynced(call) {
						skipped++
						return syscallfault.Pretend
					}
					return 0
				}, act)
				if err != nil {
					t.Fatal(err)
				}
			})
			found, tried := l.FirstUnsafe(t, recording, powercut.Choice{PerFlush: 8, Seed: 1}, l.check)
			if found == "" || skipped == 0 {
				t.Fatalf("%d states do not show the defect; %d syncs were left out", tried, skipped)
			}
			t.Logf("left out %d syncs; found by state %d: %.300s", skipped, tried, found)
		})
	}
}
