// Package powertest runs operations on a filesystem of a recorded disk, and a check on
// each content that a power cut can leave of it. Tests of several packages share it.
package powertest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/linux/command"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
	"github.com/holdfast-csi/holdfast/simulation/powercut"
)

// Flags choose states. A test binary has one set of them.
type Flags struct {
	subsets   int
	recording string
	state     int
	keep      string
}

// NewFlags registers the flags.
func NewFlags() *Flags {
	f := &Flags{}
	flag.IntVar(&f.subsets, "powercut.subsets", 0, "subsets of the unflushed writes after each flush; 0: as the test says")
	flag.StringVar(&f.recording, "powercut.recording", "", "a recording that a failed test kept: replay it alone")
	flag.IntVar(&f.state, "powercut.state", -1, "the state of the recording to replay; -1: all of them")
	flag.StringVar(&f.keep, "powercut.keep", os.TempDir(), "the directory for recordings of failed tests")
	return f
}

// Choice is what the flags say, or subsets.
func (f *Flags) Choice(subsets int) powercut.Choice {
	if f.subsets > 0 {
		subsets = f.subsets
	}
	return powercut.Choice{PerFlush: subsets, Seed: 1}
}

// AreGiven says that the flags give a number of subsets.
func (f *Flags) AreGiven() bool { return f.subsets > 0 }

// Kept is the recording that the flags name, nil if they name none.
func (f *Flags) Kept(t testing.TB) *powercut.Recording {
	t.Helper()
	if f.recording == "" {
		return nil
	}
	recording, err := powercut.Load(f.recording)
	must(t, err)
	return recording
}

// Lab is a recorded disk and the place for its filesystem.
type Lab struct {
	FSType string
	Disk   *powercut.Disk
	// Mount is where the filesystem is mounted while it is.
	Mount string
	Flags *Flags
}

// New makes a lab. The disk has 600 MiB, and is in memory.
func New(t testing.TB, fsType string, flags *Flags) *Lab {
	t.Helper()
	dir := nodetest.Dir(t)
	l := &Lab{FSType: fsType, Mount: filepath.Join(dir, "mounted"), Flags: flags}
	below := filepath.Join(dir, "below")
	must(t, os.Mkdir(l.Mount, 0o700))
	must(t, os.Mkdir(below, 0o700))
	disk, err := powercut.New(t.Context(), below, 600<<20)
	must(t, err)
	t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	l.Disk = disk
	return l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Format makes the filesystem and mounts it until the test unmounts it.
func (l *Lab) Format(t testing.TB) {
	t.Helper()
	arguments := map[string][]string{"ext4": {"-q", "-F"}, "xfs": {"-q", "-f"}, "btrfs": {"-q", "-f"}}[l.FSType]
	result, err := command.NewSystem().Run(t.Context(), command.Command{Name: "mkfs." + l.FSType, Args: append(arguments, l.Disk.Path)})
	if err != nil || result.ExitCode != 0 {
		t.Fatalf("mkfs.%s: %v, %s", l.FSType, err, result.Stderr)
	}
	must(t, l.mount())
}

func (l *Lab) mount() error {
	if err := unix.Mount(l.Disk.Path, l.Mount, l.FSType, unix.MS_NOATIME, ""); err != nil {
		return fmt.Errorf("mount the %s of the disk: %w", l.FSType, err)
	}
	return nil
}

// Unmount waits for what keeps a mount for an instant, such as a loop device that the
// kernel has not released yet.
func (l *Lab) Unmount(t testing.TB) {
	t.Helper()
	var err error
	for range 6000 {
		if err = unix.Unmount(l.Mount, 0); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("unmount %s: %v", l.Mount, err)
}

// Begin syncs the filesystem and begins the recording.
func (l *Lab) Begin(t testing.TB) {
	t.Helper()
	top, err := os.Open(l.Mount)
	must(t, err)
	must(t, unix.Syncfs(int(top.Fd())))
	must(t, top.Close())
	must(t, l.Disk.Record(l.sector()))
}

// sector is what the filesystem assumes to be written wholly or not at all: btrfs and
// ext4 keep a superblock, with a checksum over all of it, in a block of 4 KiB.
func (l *Lab) sector() int64 {
	if l.FSType == "xfs" {
		return 512
	}
	return 4096
}

// Mark marks an instant of the recording.
func (l *Lab) Mark(t testing.TB, label string) {
	t.Helper()
	must(t, l.Disk.Mark(label))
}

// Stop ends the recording.
func (l *Lab) Stop(t testing.TB) *powercut.Recording {
	t.Helper()
	recording, err := l.Disk.Stop()
	must(t, err)
	return recording
}

// Check fails t if the filesystem is not as it has to be in a state.
type Check func(t testing.TB, state powercut.State)

// Try mounts one state and returns what the check complains of.
func (l *Lab) Try(t testing.TB, state powercut.State, check Check) []string {
	t.Helper()
	must(t, l.Disk.Insert(state))
	c := &collector{TB: t, context: context.WithoutCancel(t.Context())}
	return c.run(func() {
		if err := l.mount(); err != nil {
			c.Fatal(err)
		}
		c.Cleanup(func() { l.Unmount(c) })
		check(c, state)
	})
}

// WantSafe fails t for each state that the check complains of, at most five. It keeps
// the recording of a failure in a file.
func (l *Lab) WantSafe(t testing.TB, recording *powercut.Recording, name string, chosen powercut.Choice, check Check) {
	t.Helper()
	states, failed := 0, 0
	for state := range recording.States(chosen) {
		if l.Flags.recording != "" && l.Flags.state >= 0 && state.Number != l.Flags.state {
			continue
		}
		states++
		complaints := l.Try(t, state, check)
		if len(complaints) == 0 {
			continue
		}
		if failed++; failed == 1 && l.Flags.recording == "" {
			l.keep(t, recording, name, chosen)
		}
		t.Errorf("%s:\n\t%s", state, strings.Join(complaints, "\n\t"))
		if failed == 5 {
			t.Error("the other states were not tried")
			break
		}
	}
	t.Logf("%d states of %d writes and %d flushes", states, recording.Writes(), recording.Flushes())
}

func (l *Lab) keep(t testing.TB, recording *powercut.Recording, name string, chosen powercut.Choice) {
	t.Helper()
	file := fmt.Sprintf("powercut-%s-%s-%d", l.FSType, strings.ReplaceAll(name, " ", "-"), os.Getpid())
	path := filepath.Join(l.Flags.keep, file)
	if err := recording.Save(path); err != nil {
		t.Error(err)
		return
	}
	t.Errorf("the recording is kept; replay one state of it with\n\tmake powercut-state RECORDING=%s SUBSETS=%d STATE=NUMBER",
		path, chosen.PerFlush)
}

// FirstUnsafe returns the first state that the check complains of, and how many states
// were tried. It is for recordings with a defect that must be found.
func (l *Lab) FirstUnsafe(t testing.TB, recording *powercut.Recording, chosen powercut.Choice, check Check) (string, int) {
	t.Helper()
	must(t, l.Disk.Load(recording))
	tried := 0
	for state := range recording.States(chosen) {
		tried++
		if complaints := l.Try(t, state, check); len(complaints) > 0 {
			return fmt.Sprintf("%s: %s", state, complaints[0]), tried
		}
	}
	return "", tried
}
