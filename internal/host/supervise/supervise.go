// Package supervise starts drivers from unit files, restarts them when they end,
// and stops them when their file is removed. Drivers outlive the host: a restarted
// host finds them again by the records that it wrote before it started them, and
// starts none twice. It signals processes by pidfd, never by process ID alone.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/holdfast-csi/holdfast/internal/host/plugins"
)

// Registry takes drivers that have no registrar; *plugins.Manager is one.
type Registry interface {
	Offer(path string) *plugins.Offer
}

// Options of a Supervisor.
type Options struct {
	// Root is the host's directory: the files are in drivers.d below it.
	Root     string
	NodeName string
	// BootID is of this boot: processes of another one have ended.
	BootID   string
	Registry Registry
	Logger   *slog.Logger
	// StopAtEnd stops the drivers when Run ends. Without it they continue, as their
	// volumes do, and the next host takes them over.
	StopAtEnd bool
}

const (
	unitDirectory = "drivers.d"
	unitSuffix    = ".yaml"
	// quietPeriod is how long the directory must be unchanged before it is read:
	// editors write a file in several steps.
	quietPeriod = 100 * time.Millisecond
	// pollFailed is the first delay after which a directory that could not be read,
	// or is refused, is read again: not every repair of it is an event. It doubles
	// each time, up to pollLongest, unless inotify is not available.
	pollFailed  = 2 * time.Second
	pollLongest = time.Minute
)

// Supervisor runs the drivers of one directory.
type Supervisor struct {
	options Options
	open    func() (*fsnotify.Watcher, error)
	records *records
	logs    *logs

	mu      sync.Mutex
	runners map[string]*runner // by the unit's name
	files   map[string]string  // names of units by file
	broken  map[string]error   // by file
	damaged map[string]error   // by unit: why its record cannot be read
	running sync.WaitGroup
}

// New makes a Supervisor; it starts drivers in Run only.
func New(options Options) *Supervisor {
	return &Supervisor{options: options, open: fsnotify.NewWatcher, runners: map[string]*runner{},
		files: map[string]string{}, broken: map[string]error{}}
}

func (s *Supervisor) directory() string { return filepath.Join(s.options.Root, unitDirectory) }

// Run starts the drivers of the unit files and follows changes of the files until
// the context ends.
func (s *Supervisor) Run(ctx context.Context) (err error) {
	if err := os.MkdirAll(s.directory(), 0o700); err != nil {
		return fmt.Errorf("make the directory of the drivers' units: %w", err)
	}
	if s.records, err = openRecords(filepath.Join(s.options.Root, "supervise")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.records.root.Close()) }()
	if s.logs, err = openLogs(filepath.Join(s.options.Root, "logs"), s.options.Logger); err != nil {
		return err
	}
	known, damaged, err := s.records.all()
	if err != nil {
		return err
	}
	s.damaged = damaged
	defer s.running.Wait()
	s.running.Go(func() { s.logs.run(ctx, &notices{open: s.open}) })
	s.remember(ctx, known)
	return s.follow(ctx)
}

// remember makes runners for the units that an earlier host started, as recorded.
func (s *Supervisor) remember(ctx context.Context, known map[string]*record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, one := range known {
		s.files[one.File] = name
		s.begin(ctx, name, one)
	}
}

func (s *Supervisor) begin(ctx context.Context, name string, known *record) {
	r := newRunner(s, name, known)
	s.runners[name] = r
	s.running.Go(func() { r.run(ctx) })
}

// follow reads the directory after each change of it.
func (s *Supervisor) follow(ctx context.Context) (err error) {
	notices := &notices{open: s.open}
	defer func() { err = errors.Join(err, notices.close()) }()
	var lastError, lastUnwatched string
	var pause time.Duration
	for {
		err := os.MkdirAll(s.directory(), 0o700)
		unwatched := notices.of(s.directory())
		if err == nil {
			err = s.reconcile(ctx)
		}
		if err != nil {
			s.leave(ctx, err)
		}
		pause = nextPoll(pause, err, unwatched)
		var timeout <-chan time.Time
		if pause > 0 {
			timeout = time.After(pause)
		}
		s.logChanged(&lastError, "the drivers' units cannot be read; the drivers are left as they are", err)
		s.logChanged(&lastUnwatched, "the drivers' units: "+unwatchedText, unwatched)
		if !quiet(ctx, notices, timeout) {
			return nil
		}
	}
}

// nextPoll is how long to wait for a change at most; 0 is without a limit.
func nextPoll(last time.Duration, failed, unwatched error) time.Duration {
	switch {
	case unwatched != nil:
		return pollFailed
	case failed != nil:
		return min(max(2*last, pollFailed), pollLongest)
	}
	return 0
}

// logChanged logs a failure if its text differs from the last one.
func (s *Supervisor) logChanged(last *string, message string, failure error) {
	text := ""
	if failure != nil {
		text = failure.Error()
	}
	if text != "" && text != *last {
		s.options.Logger.Error(message, "error", failure)
	}
	*last = text
}

// quiet waits for a change and then until quietPeriod passes without another, or until
// timeout fires if no change comes before. It returns false if the context ended.
func quiet(ctx context.Context, notices *notices, timeout <-chan time.Time) bool {
	changes, lost := notices.channels()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-changes:
			timeout = time.After(quietPeriod)
		case <-lost: //nolint:errcheck // events were lost; the whole directory is read anyway
			timeout = time.After(quietPeriod)
		case <-timeout:
			return true
		}
	}
}

// entries lists the directory. It returns an error if users other than this one and
// root may write to the directory or replace it.
func (s *Supervisor) entries() ([]os.DirEntry, error) {
	root, err := os.Stat(s.options.Root)
	if err != nil {
		return nil, err
	}
	if err := trusted(s.options.Root, root); err != nil {
		return nil, fmt.Errorf("%s: %w", s.options.Root, err)
	}
	directory, err := os.Open(s.directory())
	if err != nil {
		return nil, err
	}
	defer func() { _ = directory.Close() }()
	info, err := directory.Stat()
	if err != nil {
		return nil, err
	}
	if err := trusted(s.directory(), info); err != nil {
		return nil, fmt.Errorf("%s: %w", s.directory(), err)
	}
	entries, err := directory.ReadDir(-1)
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// leave keeps every driver as it was started, because the directory cannot be read.
func (s *Supervisor) leave(ctx context.Context, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = map[string]error{unitDirectory: failure}
	for file := range s.files {
		s.broken[file] = failure
	}
	s.apply(ctx, nil)
}

// reconcile sets each unit to what its file says. A file that is refused changes
// nothing: its driver continues as it was started.
func (s *Supervisor) reconcile(ctx context.Context) error {
	entries, err := s.entries()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	units, broken := map[string]*Unit{}, map[string]error{}
	files := map[string]string{}
	for _, entry := range entries {
		file := entry.Name()
		if strings.HasPrefix(file, ".") || !strings.HasSuffix(file, unitSuffix) {
			continue
		}
		unit, err := s.read(file)
		if err == nil && units[unit.Name] != nil {
			err = fmt.Errorf("the name %s is taken by another file", unit.Name)
		}
		if err == nil {
			err = s.isDamaged(unit.Name)
		}
		switch {
		case err == nil:
			units[unit.Name], files[file] = unit, unit.Name
		case errors.Is(err, fs.ErrNotExist): // the file was removed meanwhile
		default:
			broken[file] = err
			if name, known := s.files[file]; known {
				files[file] = name
			}
			if before := s.broken[file]; before == nil || before.Error() != err.Error() {
				s.options.Logger.Error("a driver's unit is refused", "file", file, "error", err)
			}
		}
	}
	s.files, s.broken = files, broken
	s.apply(ctx, units)
	return nil
}

// isDamaged returns an error for a unit whose record cannot be read, until the
// record is removed.
func (s *Supervisor) isDamaged(name string) error {
	if s.damaged[name] != nil && !s.records.exists(name) {
		delete(s.damaged, name)
	}
	return s.damaged[name]
}

// apply sets each runner's unit, and makes the runners of new units.
func (s *Supervisor) apply(ctx context.Context, units map[string]*Unit) {
	kept := map[string]string{}
	for file, name := range s.files {
		kept[name] = file
	}
	for name, r := range s.runners {
		if unit := units[name]; unit != nil {
			r.setUnit(kept[name], unit)
		} else if _, known := kept[name]; !known {
			r.setUnit("", nil)
		} else {
			r.keep()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(units)) {
		if s.runners[name] == nil {
			s.begin(ctx, name, &record{})
			s.runners[name].setUnit(kept[name], units[name])
		}
	}
}

func (s *Supervisor) read(file string) (*Unit, error) {
	path := filepath.Join(s.directory(), file)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file") // opening a FIFO would block until a process writes
	}
	opened, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = opened.Close() }()
	// The opened file is inspected, not the path, which may be a symbolic link.
	if info, err = opened.Stat(); err != nil {
		return nil, err
	}
	if err := trusted(path, info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(opened, maximumFile+1))
	if err != nil {
		return nil, err
	}
	return Parse(data)
}

// ended removes a runner whose unit is gone, and makes a new one if the unit came
// back meanwhile.
func (s *Supervisor) ended(ctx context.Context, r *runner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.runners, r.name)
	if file, unit := r.desired(); unit != nil {
		s.begin(ctx, r.name, &record{})
		s.runners[r.name].setUnit(file, unit)
	}
}
