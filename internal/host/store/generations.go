package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/holdfast-csi/holdfast/internal/durable"
)

// BackupName is the newest backup of the store. Each generation of it has this
// name with the version of the store behind it, such as host.db.backup.42. A
// generation gets its name when it is whole, so that a crash between any two steps
// leaves every one that was there.
const BackupName = FileName + ".backup"

// Generation is one backup of the store.
type Generation struct {
	Name string
	// Version is that of the last change that the backup has.
	Version uint64
	Schema  int
	Taken   time.Time
	// Records counts the records by table.
	Records map[string]int
	// Problems are its faults; a backup with a fault that loses a record is not
	// restored.
	Problems []Problem
}

// Empty reports whether the backup has no record of a volume or of its use.
func (g Generation) Empty() bool { return !holdsAny(g.Records) }

// Sound reports whether every record can be read.
func (g Generation) Sound() bool {
	return !slices.ContainsFunc(g.Problems, func(p Problem) bool { return p.Lost })
}

// holdsAny reports whether there are records that stand for a volume, a snapshot
// or a use of them. A host makes the others by itself, or an administrator from a
// manifest, without an effect on any storage.
func holdsAny(records map[string]int) bool {
	return slices.ContainsFunc([]string{
		claimBucket, volumeBucket, podBucket, snapshotBucket, snapshotContentBucket, attachmentBucket, useBucket,
		provisioningBucket,
	}, func(table string) bool { return records[table] > 0 })
}

// HoldsNothing reports whether the store has no record of a volume or of its use.
func (t *Tx) HoldsNothing() bool {
	records := map[string]int{}
	for _, name := range buckets() {
		if first, _ := t.tx.Bucket([]byte(name)).Cursor().First(); first != nil {
			records[name] = 1
		}
	}
	return !holdsAny(records)
}

// Generations reads and checks every backup below root, the newest first.
func Generations(root string, options Options) ([]Generation, error) {
	names, err := generationNames(root)
	if err != nil {
		return nil, err
	}
	var found []Generation
	for _, name := range names {
		generation, err := readGeneration(root, name, options)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a host that runs has removed it meanwhile
		}
		if err != nil {
			return nil, err
		}
		found = append(found, generation)
	}
	slices.SortStableFunc(found, func(a, b Generation) int { return cmp.Compare(b.Version, a.Version) })
	return found, nil
}

// generationNames lists the generations' files. The file without a version is
// listed unless it is another name of one of them: earlier programs kept one backup.
func generationNames(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("list the backups of the host's store: %w", err)
	}
	var names []string
	var infos []fs.FileInfo
	for _, entry := range entries {
		if _, ok := generationVersion(entry.Name()); !ok || !entry.Type().IsRegular() {
			continue
		}
		names = append(names, entry.Name())
		if info, err := entry.Info(); err == nil {
			infos = append(infos, info)
		}
	}
	newest, err := os.Lstat(filepath.Join(root, BackupName))
	if err == nil && newest.Mode().IsRegular() &&
		!slices.ContainsFunc(infos, func(info fs.FileInfo) bool { return os.SameFile(info, newest) }) {
		names = append(names, BackupName)
	}
	return names, nil
}

func generationName(version uint64) string {
	return BackupName + "." + strconv.FormatUint(version, 10)
}

func generationVersion(name string) (uint64, bool) {
	text, ok := strings.CutPrefix(name, BackupName+".")
	version, err := strconv.ParseUint(text, 10, 64)
	return version, ok && err == nil && generationName(version) == name
}

// readGeneration checks one backup. What is wrong in it is in the result.
func readGeneration(root, name string, options Options) (Generation, error) {
	path := filepath.Join(root, name)
	info, err := os.Stat(path)
	if err != nil {
		return Generation{}, err
	}
	report, err := checkFile(path, options.vault(root))
	if err != nil {
		report = &Report{Path: path, Problems: []Problem{{Where: "the file", What: err.Error(), Lost: true}}}
	}
	return Generation{
		Name: name, Version: report.Version, Schema: report.Schema, Taken: info.ModTime(),
		Records: report.Records, Problems: report.Problems,
	}, nil
}

// kept is how many of the newest generations rotation keeps, and keptDays of how
// many days before it keeps the last one.
const (
	kept     = 3
	keptDays = 7
)

// surplus chooses the generations that rotation removes. It keeps the newest
// ones, the last one of each of the latest days, and the newest sound one that is
// not empty, however old: a store that lost its records must not age out the
// backup that has them. It removes no damaged one before its turn. The
// generations are sorted, the newest first.
func surplus(generations []Generation) (remove []Generation) {
	days := map[string]bool{}
	full := false
	for i, generation := range generations {
		needed := i < kept
		if day := generation.Taken.UTC().Format(time.DateOnly); !days[day] && len(days) < keptDays {
			days[day], needed = true, true
		}
		if !full && generation.Sound() && !generation.Empty() {
			full, needed = true, true
		}
		if !needed {
			remove = append(remove, generation)
		}
	}
	return remove
}

// Backup makes a generation of the store, unless nothing changed since the last
// one, and removes generations that rotation does not keep. A backup is written under
// another name, synced, and read in full before it gets its name; older ones are
// removed after that.
func (s *Store) Backup() error {
	if err := s.backup(); err != nil {
		return fmt.Errorf("back up the host's store %s: %w", s.path, err)
	}
	return nil
}

func (s *Store) backup() error {
	s.backups.Lock()
	defer s.backups.Unlock()
	root, err := os.OpenRoot(filepath.Dir(s.path))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	transaction := 0
	if err := s.db.View(func(tx *bbolt.Tx) error { transaction = tx.ID(); return nil }); err != nil {
		return err
	}
	if transaction == s.backedUp {
		return nil
	}
	made, err := s.makeGeneration(root)
	if err != nil {
		return err
	}
	if err := s.points.Hit("store/backup/made"); err != nil {
		return err
	}
	if err := s.linkNewest(root, made); err != nil {
		return err
	}
	if err := s.points.Hit("store/backup/linked"); err != nil {
		return err
	}
	if err := s.rotate(root); err != nil {
		return err
	}
	s.backedUp = transaction
	return nil
}

// makeGeneration returns the name of the generation. One of the same version is
// replaced: it may lack records that have no version, such as those of uses.
func (s *Store) makeGeneration(root *os.Root) (string, error) {
	temporary := BackupName + durable.TempSuffix
	if err := root.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := s.writeCopy(root, temporary); err != nil {
		return "", errors.Join(err, removeIfThere(root, temporary))
	}
	if err := s.points.Hit("store/backup/written"); err != nil {
		return "", err
	}
	generation, err := readGeneration(root.Name(), temporary, s.options)
	if err == nil && !generation.Sound() {
		err = fmt.Errorf("the copy %w: %s", ErrDamaged, generation.Problems[0])
	}
	if err != nil {
		return "", errors.Join(err, removeIfThere(root, temporary))
	}
	name := generationName(generation.Version)
	return name, durable.Rename(root, temporary, name)
}

func removeIfThere(root *os.Root, name string) error {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// linkNewest makes BackupName another name of a generation.
func (s *Store) linkNewest(root *os.Root, name string) error {
	newest, err := root.Stat(BackupName)
	if err == nil {
		made, err := root.Stat(name)
		if err == nil && os.SameFile(newest, made) {
			return nil
		}
		if err := s.keepEarlier(root); err != nil {
			return err
		}
	}
	temporary := BackupName + durable.TempSuffix
	if err := removeIfThere(root, temporary); err != nil {
		return err
	}
	if err := root.Link(name, temporary); err != nil {
		return err
	}
	return durable.Rename(root, temporary, BackupName)
}

// keepEarlier renames the one backup of an earlier program, or one that an
// administrator put there, to the name of a generation.
func (s *Store) keepEarlier(root *os.Root) error {
	names, err := generationNames(root.Name())
	if err != nil || !slices.Contains(names, BackupName) {
		return err
	}
	generation, err := readGeneration(root.Name(), BackupName, s.options)
	if err != nil {
		return err
	}
	if !generation.Sound() {
		return nil
	}
	if err := root.Link(BackupName, generationName(generation.Version)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return durable.SyncDir(root, ".")
}

// rotate removes the generations that are not needed any more.
func (s *Store) rotate(root *os.Root) error {
	names, err := generationNames(root.Name())
	if err != nil || len(names) <= kept {
		return err
	}
	generations, err := Generations(root.Name(), s.options)
	if err != nil {
		return err
	}
	for _, generation := range surplus(generations) {
		if generation.Name == BackupName {
			continue
		}
		if err := removeIfThere(root, generation.Name); err != nil {
			return err
		}
		if err := s.points.Hit("store/backup/removed"); err != nil {
			return err
		}
	}
	return nil
}

// ErrOlder reports that the store is of an earlier time than a backup of it.
var ErrOlder = errors.New("is older than a backup of it")

// compareWithBackups refuses a store that lacks changes which a sound backup has: an
// older file replaced it.
func (s *Store) compareWithBackups(version uint64) error {
	root := filepath.Dir(s.path)
	names, err := generationNames(root)
	if err != nil {
		return err
	}
	for _, name := range names {
		if claimed, ok := generationVersion(name); ok && claimed <= version {
			continue
		}
		generation, err := readGeneration(root, name, s.options)
		if err != nil || !generation.Sound() || generation.Version <= version {
			continue // one that is damaged, or has another name, shows nothing
		}
		return fmt.Errorf("the host's store %s %w: it has the changes up to version %d, and %s those up to %d: "+
			"restore a backup with 'holdfast host restore NAME' ('holdfast host backups' lists them), which accepts an older one, too",
			s.path, ErrOlder, version, name, generation.Version)
	}
	return nil
}
