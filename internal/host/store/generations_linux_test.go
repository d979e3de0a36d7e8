package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/failpoint"
)

// backupModel is the expected state of the backups of one root directory, also after
// failures and kills.
type backupModel struct {
	t      *testing.T
	root   string
	random *rand.Rand
	claims int
	// newest is the highest number of claims that a backup that succeeded had
	// since the store was replaced last.
	newest int
}

func (m *backupModel) change(s *Store) {
	m.t.Helper()
	name := fmt.Sprintf("c%03d", m.claims)
	err := s.Update(func(tx *Tx) error {
		return tx.Claims().Put("default/"+name, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}})
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.claims++
}

// check checks that a sound backup has what the last successful one had.
func (m *backupModel) check(step string) []Generation {
	m.t.Helper()
	generations, err := Generations(m.root, Options{})
	if err != nil {
		m.t.Fatal(err)
	}
	best := 0
	for _, g := range generations {
		if !g.Sound() {
			m.t.Errorf("%s: the backup %s is damaged: %v", step, g.Name, g.Problems)
		}
		best = max(best, g.Records[claimBucket])
	}
	if best < m.newest {
		m.t.Fatalf("%s: the best backup has %d claims of %d", step, best, m.newest)
	}
	return generations
}

// Random changes, backups that end at any step, stores that are lost, damaged,
// emptied or replaced by an older one: records of a backup are never lost, and no start
// accepts a store that lacks them.
func TestBackup_modelOfLossAndCrashes(t *testing.T) {
	points := []string{"store/backup/written", "store/backup/made", "store/backup/linked", "store/backup/removed"}
	for seed := range uint64(8) {
		m := &backupModel{t: t, root: t.TempDir(), random: rand.New(rand.NewPCG(seed, 3))}
		path := filepath.Join(m.root, FileName)
		for step := range 25 {
			var options Options
			if m.random.IntN(3) == 0 {
				var err error
				if options.Failpoints, err = failpoint.Parse(points[m.random.IntN(len(points))] + "=error"); err != nil {
					t.Fatal(err)
				}
			}
			s, err := OpenWith(m.root, options)
			if err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			for range m.random.IntN(3) {
				m.change(s)
			}
			err = s.Backup()
			if err != nil && !errors.Is(err, failpoint.ErrInjected) {
				t.Fatal(err)
			}
			if err == nil {
				m.newest = m.claims
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			where := fmt.Sprintf("seed %d, step %d", seed, step)
			m.check(where)
			if m.newest > 0 && m.random.IntN(4) == 0 {
				m.lose(where, path)
			}
		}
	}
}

// lose takes the store away, and restores the newest backup.
func (m *backupModel) lose(where, path string) {
	m.t.Helper()
	what := m.random.IntN(4)
	before := readBackups(m.t, m.root)
	switch what {
	case 0:
		m.must(os.Remove(path))
	case 1:
		m.must(os.Truncate(path, 0))
	case 2: // the store of a host that has done nothing
		other := m.t.TempDir()
		m.must(open(m.t, other).Close())
		m.must(os.Rename(filepath.Join(other, FileName), path))
	case 3:
		data, err := os.ReadFile(path)
		m.must(err)
		clear(data[:2*os.Getpagesize()])
		m.must(os.WriteFile(path, data, 0o600))
	}
	refused := errors.New("there are remains")
	for range 3 {
		s, err := OpenWith(m.root, Options{New: func() error { return refused }})
		if err == nil {
			m.must(s.Close())
			m.t.Fatalf("%s: a store is opened after loss %d", where, what)
		}
		if !errors.Is(err, refused) && !errors.Is(err, ErrOlder) && !errors.Is(err, ErrDamaged) {
			m.t.Fatalf("%s: after loss %d: %v", where, what, err)
		}
	}
	if after := readBackups(m.t, m.root); !slices.Equal(before, after) {
		m.t.Fatalf("%s: a store that was refused changed the backups", where)
	}
	generations := m.check(where)
	restored, err := Restore(m.root, generations[0].Name, Options{}, time.Now())
	m.must(err)
	if restored.Kept != "" {
		m.must(os.Remove(restored.Kept)) // the next one may come in the same second
	}
	m.claims, m.newest = restored.Records[claimBucket], restored.Records[claimBucket]
}

func (m *backupModel) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func readBackups(t *testing.T, root string) (content []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, BackupName+"*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		content = append(content, name, string(data))
	}
	return content
}

func TestSurplus_keepsTheNewestTheDaysAndTheLastThatIsNotEmpty(t *testing.T) {
	now := time.Date(2026, 5, 20, 12, 0, 0, 0, time.UTC)
	full, empty := map[string]int{claimBucket: 1}, map[string]int{}
	generation := func(name string, hours int, records map[string]int) Generation {
		return Generation{Name: name, Taken: now.Add(-time.Duration(hours) * time.Hour), Records: records}
	}
	damaged := generation("damaged", 30*24, full)
	damaged.Problems = []Problem{{Lost: true}}
	for _, c := range []struct {
		name        string
		generations []Generation
		removed     string
	}{
		{"few", []Generation{generation("a", 0, empty), generation("b", 1, full)}, ""},
		{"many of one day", []Generation{generation("a", 0, full), generation("b", 1, full), generation("c", 2, full), generation("d", 3, full), generation("e", 4, full)}, "d e"},
		{"the last of a day", []Generation{generation("a", 0, full), generation("b", 1, full), generation("c", 2, full), generation("d", 24, full), generation("e", 25, full)}, "e"},
		{"the last that is not empty", []Generation{
			generation("a", 0, empty), generation("b", 1, empty), generation("c", 2, empty), generation("d", 3, empty), damaged,
			generation("f", 40*24, full), generation("g", 40*24, full),
		}, "d g"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var names []string
			for _, g := range surplus(c.generations) {
				names = append(names, g.Name)
			}
			if got := strings.Join(names, " "); got != c.removed {
				t.Errorf("it removes %q; want %q", got, c.removed)
			}
		})
	}
}

// A store with a damaged record makes no backup: its copy would look like one.
func TestBackup_ofADamagedStoreReplacesNothing(t *testing.T) {
	root := t.TempDir()
	m := &backupModel{t: t, root: root}
	s := open(t, root)
	m.change(s)
	if err := s.Backup(); err != nil {
		t.Fatal(err)
	}
	before := readBackups(t, root)
	if err := s.Update(func(tx *Tx) error { return tx.put(claimBucket, "default/c000", []byte("{")) }); err != nil {
		t.Fatal(err)
	}
	if err := s.Backup(); !errors.Is(err, ErrDamaged) {
		t.Errorf("got %v", err)
	}
	if after := readBackups(t, root); !slices.Equal(before, after) {
		t.Error("the backups have changed")
	}
}

// The one backup of an earlier program becomes a generation.
func TestBackup_keepsTheOneOfAnEarlierProgram(t *testing.T) {
	root := t.TempDir()
	m := &backupModel{t: t, root: root}
	s := open(t, root)
	m.change(s)
	if err := s.copyTo(BackupName); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(root, BackupName))
	if err != nil {
		t.Fatal(err)
	}
	m.change(s)
	if err := s.Backup(); err != nil {
		t.Fatal(err)
	}
	if kept, err := os.ReadFile(filepath.Join(root, generationName(1))); err != nil || !bytes.Equal(kept, before) {
		t.Errorf("it is not kept: %v", err)
	}
	if newest, err := os.ReadFile(filepath.Join(root, BackupName)); err != nil || bytes.Equal(newest, before) {
		t.Errorf("the newest is still the one of the earlier program: %v", err)
	}
}

func TestRestore_refusesADamagedBackupAndAStoreInUse(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	(&backupModel{t: t, root: root}).change(s)
	if err := s.Backup(); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(root, BackupName, Options{}, time.Now()); !errors.Is(err, ErrLocked) {
		t.Errorf("while it is open: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(root, "broken")
	if err := os.WriteFile(broken, []byte(strings.Repeat("no store", 4096)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(root, broken, Options{}, time.Now()); !errors.Is(err, ErrDamaged) {
		t.Errorf("a damaged backup: %v", err)
	}
	if _, err := Open(root); err != nil {
		t.Errorf("the store was changed: %v", err)
	}
}

// An administrator who chose the wrong backup restores another one at once.
func TestRestore_twiceInOneSecond(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	(&backupModel{t: t, root: root}).change(s)
	if err := errors.Join(s.Backup(), s.Close()); err != nil {
		t.Fatal(err)
	}
	now, kept := time.Now(), map[string]bool{}
	for range 3 {
		replaced, err := Restore(root, BackupName, Options{}, now)
		if err != nil {
			t.Fatal(err)
		}
		kept[replaced.Kept] = true
	}
	if _, err := Reset(root, Options{}, now); err != nil {
		t.Error(err)
	}
	for path := range kept {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if len(kept) != 3 {
		t.Errorf("three stores are kept as %v", kept)
	}
}
