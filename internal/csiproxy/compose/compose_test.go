package compose

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

func quick() *Operations {
	o := New()
	o.Poll = time.Millisecond
	return o
}

// dieEverywhere runs an operation on machines where the process dies at each call
// in turn, before its effect and after it, and then repeats it.
func dieEverywhere(t *testing.T, make func() *machine, run func(*machine) error, check func(*testing.T, *machine)) {
	t.Helper()
	whole := make()
	if err := run(whole); err != nil {
		t.Fatalf("without a crash: %v", err)
	}
	check(t, whole)
	for at := range len(whole.calls) {
		for _, done := range []bool{false, true} {
			m := make()
			m.dieAt, m.diesWithDone = at+1, done
			if err := run(m); !errors.Is(err, errCrash) {
				t.Errorf("died at %s: %v", whole.calls[at], err)
			}
			m.dieAt = 0
			if err := run(m); err != nil {
				t.Errorf("repeated after the death at %s (done: %t): %v", whole.calls[at], done, err)
			}
			check(t, m)
		}
	}
}

func TestFormatVolume_isFinishedByARepetition(t *testing.T) {
	run := func(m *machine) error {
		_, err := quick().FormatVolume(t.Context(), m.host(), Format{VolumeID: volumeID, FileSystem: "NTFS", Path: staging})
		return err
	}
	dieEverywhere(t, newMachine, run, func(t *testing.T, m *machine) {
		if m.fileSystems[volumeID] != "NTFS" || m.mounted[staging] != volumeID {
			t.Errorf("%v, %v", m.fileSystems, m.mounted)
		}
	})
}

func TestFormatVolume_refusesBeforeAnythingIsMade(t *testing.T) {
	for name, c := range map[string]struct {
		format Format
		change func(*machine)
		want   error
	}{
		"no volume":      {Format{Path: staging}, nil, backend.ErrInvalid},
		"unknown volume": {Format{VolumeID: `\\?\Volume{2}\`, Path: staging}, nil, backend.ErrNotFound},
		"path outside":   {Format{VolumeID: volumeID, Path: `C:\windows`}, nil, backend.ErrInvalid},
		"another volume there": {Format{VolumeID: volumeID, Path: staging},
			func(m *machine) { m.mounted[staging] = otherID }, backend.ErrPrecondition},
		"directory not empty": {Format{VolumeID: volumeID, Path: staging},
			func(m *machine) { m.directories[staging] = true }, backend.ErrPrecondition},
		"another file system": {Format{VolumeID: otherID, FileSystem: "ReFS", Path: staging}, nil, backend.ErrPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine()
			if c.change != nil {
				c.change(m)
			}
			formatted, err := quick().FormatVolume(t.Context(), m.host(), c.format)
			if !errors.Is(err, c.want) || formatted {
				t.Errorf("formatted %t: %v; want %v", formatted, err, c.want)
			}
			if m.fileSystems[volumeID] != "" || m.mounted[staging] == volumeID {
				t.Errorf("made: %v %v", m.fileSystems, m.mounted)
			}
		})
	}
}

// An existing filesystem is never replaced.
func TestFormatVolume_mountsWhatIsFormattedAsItIs(t *testing.T) {
	m := newMachine()
	formatted, err := quick().FormatVolume(t.Context(), m.host(), Format{VolumeID: otherID, FileSystem: "ntfs", Path: staging})
	if err != nil || formatted || m.mounted[staging] != otherID {
		t.Errorf("%t, %v, %v", formatted, err, m.mounted)
	}
	if slices.ContainsFunc(m.calls, func(call string) bool { return strings.HasPrefix(call, "Format") }) {
		t.Errorf("calls: %q", m.calls)
	}
}

func TestFormatVolume_withoutAPathFormatsOnly(t *testing.T) {
	m := newMachine()
	formatted, err := quick().FormatVolume(t.Context(), m.host(), Format{VolumeID: volumeID})
	if err != nil || !formatted {
		t.Fatal(formatted, err)
	}
	if diff := cmp.Diff([]string{"FileSystem", `Format ""`}, m.calls); diff != "" {
		t.Error(diff)
	}
}

func TestFormatVolume_isOneAtATime(t *testing.T) {
	o, m := quick(), newMachine()
	unlock, err := o.lock("volume " + canonical(strings.ToUpper(volumeID)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.FormatVolume(t.Context(), m.host(), Format{
		VolumeID: strings.TrimSuffix(volumeID, `\`), Path: staging,
	}); !errors.Is(err, backend.ErrBusy) {
		t.Errorf("second: %v", err)
	}
	unlock()
	if _, err := o.FormatVolume(t.Context(), m.host(), Format{VolumeID: volumeID, Path: staging}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// Where a version has no other way to the volume, there is one, or an error.
func TestPartition_bringsAPartitionedDiskOnlineAndNeverAnswersNothing(t *testing.T) {
	offlineDisk := func() *machine {
		m := newMachine()
		m.partitioned[5] = otherID
		return m
	}
	run := func(m *machine) error {
		id, err := quick().Partition(t.Context(), m.host(), 5)
		if err == nil && id != otherID {
			t.Errorf("volume %q", id)
		}
		return err
	}
	dieEverywhere(t, offlineDisk, run, func(t *testing.T, m *machine) {
		if m.offline[5] {
			t.Error("the disk is offline")
		}
	})
	m := newMachine()
	m.partitioned[5] = ""
	if id, err := quick().Partition(t.Context(), m.host(), 5); id != "" || !errors.Is(err, backend.ErrPrecondition) {
		t.Errorf("a disk without a volume: %q, %v", id, err)
	}
	m = newMachine()
	if id, err := quick().Partition(t.Context(), m.host(), 6); id != volumeID || err != nil {
		t.Errorf("a blank disk: %q, %v", id, err)
	}
}

func login() api.ISCSILogin {
	return api.ISCSILogin{Portal: api.Portal{Address: "10.0.0.1"}, IQN: target}
}

func TestMountISCSILun_isFinishedByARepetition(t *testing.T) {
	for name, make := range map[string]func() *machine{
		"unknown portal": newMachine,
		"known portal":   func() *machine { m := newMachine(); m.portals["10.0.0.1"] = true; return m },
		"session":        func() *machine { m := newMachine(); m.connected = true; return m },
		"new LUN": func() *machine {
			m := newMachine()
			m.connected, m.disks, m.late = true, map[uint32]uint32{7: 6}, map[uint32]uint32{0: 5}
			return m
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := func(m *machine) error {
				disk, err := quick().MountISCSILun(t.Context(), m.host(), login(), 0)
				if err == nil && disk != 5 {
					t.Errorf("disk %d", disk)
				}
				return err
			}
			dieEverywhere(t, make, run, func(t *testing.T, m *machine) {
				if !m.connected || !m.kept || m.offline[5] {
					t.Errorf("connected %t, kept %t, offline %v", m.connected, m.kept, m.offline)
				}
			})
		})
	}
}

// A session that Windows has not kept yet gives disks, and would be gone after a
// restart: a repeated call keeps it.
func TestMountISCSILun_keepsASessionWhoseLoginWasNotKept(t *testing.T) {
	m := newMachine()
	m.keepFails = 1
	if _, err := quick().MountISCSILun(t.Context(), m.host(), login(), 0); !errors.Is(err, backend.ErrInUse) {
		t.Errorf("%v; want in use", err)
	}
	if _, err := quick().MountISCSILun(t.Context(), m.host(), login(), 0); err != nil || !m.kept {
		t.Errorf("%v, kept %t", err, m.kept)
	}
}

func TestMountISCSILun_refusesBeforeAnythingIsMade(t *testing.T) {
	for name, change := range map[string]func(*api.ISCSILogin){
		"no address":          func(l *api.ISCSILogin) { l.Portal.Address = "" },
		"port beyond 16 bits": func(l *api.ISCSILogin) { l.Portal.Port = 65536 },
		"no name":             func(l *api.ISCSILogin) { l.IQN = "" },
		"bad name":            func(l *api.ISCSILogin) { l.IQN = "bad name" },
		"CHAP without secret": func(l *api.ISCSILogin) { l.Auth, l.Username = api.OneWayCHAP, "u" },
		"CHAP without user":   func(l *api.ISCSILogin) { l.Auth, l.Secret = api.MutualCHAP, "123456789012" },
		"secret without CHAP": func(l *api.ISCSILogin) { l.Secret = "123456789012" },
	} {
		t.Run(name, func(t *testing.T) {
			m, l := newMachine(), login()
			change(&l)
			_, err := quick().MountISCSILun(t.Context(), m.host(), l, 0)
			if !errors.Is(err, backend.ErrInvalid) || strings.Contains(err.Error(), "123456789012") {
				t.Errorf("error: %v", err)
			}
			if len(m.portals) > 0 || m.connected {
				t.Error("something was made")
			}
		})
	}
}

func TestMountISCSILun_forgetsThePortalThatHasNotTheTarget(t *testing.T) {
	m := newMachine()
	m.offers = []string{"iqn.other"}
	if _, err := quick().MountISCSILun(t.Context(), m.host(), login(), 0); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("another target: %v", err)
	}
	unreachable := newMachine()
	unreachable.discoverErr = backend.ErrUnavailable
	if _, err := quick().MountISCSILun(t.Context(), unreachable.host(), login(), 0); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("unreachable: %v", err)
	}
	known := newMachine()
	known.portals["10.0.0.1"], known.offers = true, nil
	if _, err := quick().MountISCSILun(t.Context(), known.host(), login(), 0); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("known portal: %v", err)
	}
	if len(m.portals) != 0 || len(unreachable.portals) != 0 || len(known.portals) != 1 {
		t.Errorf("portals: %v, %v, %v", m.portals, unreachable.portals, known.portals)
	}
}

func TestMountISCSILun_waitsForItsLUNAndSaysWhichThereAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		_, err := quick().MountISCSILun(t.Context(), m.host(), login(), 3)
		if !errors.Is(err, backend.ErrNotFound) || !strings.Contains(err.Error(), "its disks are at 0") {
			t.Errorf("unknown LUN: %v", err)
		}
		none := newMachine()
		none.disks = nil
		if _, err := quick().MountISCSILun(t.Context(), none.host(), login(), 0); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("no disk at all: %v", err)
		}
		gone, cancel := context.WithCancel(t.Context())
		o := quick()
		o.Wait = time.Hour
		time.AfterFunc(10*time.Millisecond, cancel)
		if _, err := o.MountISCSILun(gone, newMachine().host(), login(), 3); !errors.Is(err, context.Canceled) {
			t.Errorf("the caller has gone: %v", err)
		}
	})
}

func TestUnmountISCSILun_isFinishedByARepetition(t *testing.T) {
	connected := func() *machine {
		m := newMachine()
		m.connected, m.offline[5] = true, false
		return m
	}
	run := func(m *machine) error {
		return quick().UnmountISCSILun(t.Context(), m.host(), login().Portal, target, 0)
	}
	dieEverywhere(t, connected, run, func(t *testing.T, m *machine) {
		if m.connected || !m.offline[5] {
			t.Errorf("connected %t, offline %v", m.connected, m.offline)
		}
	})
}

// Two volumes can be LUNs of one target: the end of one is not that of the other.
func TestUnmountISCSILun_keepsTheSessionForOtherLUNs(t *testing.T) {
	m, o := newMachine(), quick()
	m.disks = map[uint32]uint32{0: 5, 1: 6}
	for lun := range uint32(2) {
		if _, err := o.MountISCSILun(t.Context(), m.host(), login(), lun); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.UnmountISCSILun(t.Context(), m.host(), login().Portal, target, 0); err != nil {
		t.Fatal(err)
	}
	if !m.connected || !m.offline[5] || m.offline[6] {
		t.Errorf("after the first: connected %t, offline %v", m.connected, m.offline)
	}
	if err := o.UnmountISCSILun(t.Context(), m.host(), api.Portal{Address: "10.0.0.1", Port: 3260}, strings.ToUpper(target), 1); err != nil {
		t.Fatal(err)
	}
	if m.connected {
		t.Error("the session is left after the last")
	}
	if err := o.UnmountISCSILun(t.Context(), m.host(), login().Portal, target, 1); err != nil {
		t.Errorf("repeated: %v", err)
	}
}
