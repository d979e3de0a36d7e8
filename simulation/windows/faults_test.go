package windows_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

func TestFaults_doWhatTheySay(t *testing.T) {
	for _, c := range []struct {
		action  windows.Action
		err     error
		happens bool
	}{
		{windows.Fail, win32.ErrorIODevice, false},
		{windows.FailAfter, win32.ErrorIODevice, true},
		{windows.Pretend, nil, false},
		{windows.Delay, nil, true},
		{windows.DieBefore, windows.ErrDied, false},
		{windows.DieAfter, windows.ErrDied, true},
	} {
		m, calls := machine(t, windows.Options{})
		d, err := calls.Files.OpenRoot(`C:\Users`)
		must(t, err)
		fault := m.Inject(windows.Fault{
			Call: "directory.mkdir", Target: `c:\users\B`, Action: c.action, Errno: win32.ErrorIODevice, Times: 1, For: time.Millisecond,
		})
		must(t, d.Mkdir("a"))
		if err := d.Mkdir("b"); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", c.action, err)
		}
		if m.Exists(`C:\Users\b`) != c.happens {
			t.Errorf("%s: the directory is there: %v", c.action, !c.happens)
		}
		dead := errors.Is(c.err, windows.ErrDied)
		if err := d.Mkdir("c"); errors.Is(err, windows.ErrDied) != dead || !dead && err != nil {
			t.Errorf("%s, the next call: %v", c.action, err)
		}
		if fault.Hits() != 1 || dead && m.OpenHandles() != 0 {
			t.Errorf("%s: %d hits, %d handles", c.action, fault.Hits(), m.OpenHandles())
		}
		_, err = m.Calls().Files.OpenRoot(`C:\Users`)
		must(t, err)
	}
}

// A process that dies gives everything back: its locks and its directories.
func TestDeath_closesAllHandles(t *testing.T) {
	m, calls, _, volume := mounted(t)
	_, err := calls.Files.OpenRoot(`C:\Users`)
	must(t, err)
	v, err := calls.Volumes.Open(volume, win32.ReadWrite)
	must(t, err)
	control(t, v, win32.FsctlLockVolume, nil)
	m.EndProcesses()
	if err := v.Close(); !errors.Is(err, windows.ErrDied) {
		t.Errorf("closing: %v", err)
	}
	must(t, m.Rename(`C:\Users`, `C:\People`))
	if _, err := m.Calls().Volumes.Information(volume); err != nil {
		t.Errorf("the volume: %v", err)
	}
}

// A disk that hangs keeps no other from working, nor the files of C:.
func TestHang_isOneDisksOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, calls := machine(t, windows.Options{})
		slow := openDisk(t, calls, m.MustAddDisk(windows.DiskSpec{Serial: "slow", Size: gibi}))
		quick := openDisk(t, calls, m.MustAddDisk(windows.DiskSpec{Serial: "quick", Size: gibi}))
		fault := m.Inject(windows.Fault{Target: "SLOW", Action: windows.Hang})
		done := make(chan error)
		go func() {
			_, err := slow.Control(win32.IoctlDiskUpdateProperties, nil, nil)
			done <- err
		}()
		synctest.Wait()
		if fault.Waiting() != 1 {
			t.Errorf("%d calls hang", fault.Waiting())
		}
		control(t, quick, win32.IoctlDiskUpdateProperties, nil)
		_ = openRoot(t, calls, `C:\Users`)
		fault.Release()
		must(t, <-done)
		control(t, slow, win32.IoctlDiskUpdateProperties, nil) // passes from now on
		fault.Remove()

		again := m.Inject(windows.Fault{Call: "SMB.Mappings", Action: windows.Hang})
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		if _, err := calls.SMB.Mappings(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that leaves: %v", err)
		}
		go func() {
			_, err := calls.SMB.Mappings(context.Background())
			done <- err
		}()
		synctest.Wait()
		m.EndProcesses()
		if err := <-done; !errors.Is(err, windows.ErrDied) {
			t.Errorf("a process that ends while its call hangs: %v", err)
		}
		again.Remove()
	})
}

// A hook wins the race between an inspection and the next call.
func TestHook_runsRightBeforeACall(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	must(t, m.MkdirAll(`C:\Users\a`))
	d := openRoot(t, calls, `C:\Users`)
	remove := m.Hook(func(call windows.Call) {
		if call.Matches("Directory.Open", `C:\Users\a`) {
			must(t, m.Remove(`C:\Users\a`))
			must(t, m.Junction(`C:\Users\a`, `C:\Windows`))
		}
	})
	if info, err := d.Stat("a"); err != nil || info.IsReparse() {
		t.Fatalf("%+v, %v", info, err)
	}
	_, err := d.Open("a")
	refused(t, "the replaced entry", err, win32.ErrorStoppedOnSymlink)
	remove()
	if _, err := d.Open("a"); err == nil {
		t.Error("it is a junction")
	}
}

// A sweep: trace an operation, let it die at each change, and see that a new
// process can look at what is left.
func TestRecord_givesWhatASweepNeeds(t *testing.T) {
	run := func(calls win32.Machine) error {
		d, err := calls.Files.OpenRoot(`C:\Users`)
		if err != nil {
			return err
		}
		if err := d.Mkdir("a"); err != nil {
			return err
		}
		return d.Remove("a")
	}
	m, calls := machine(t, windows.Options{})
	stop := m.Record()
	must(t, run(calls))
	changes := 0
	for _, call := range stop() {
		if call.Changes {
			changes++
		}
	}
	if changes != 2 {
		t.Fatalf("%d calls change something", changes)
	}
	for at := 1; at <= changes; at++ {
		m, calls := machine(t, windows.Options{})
		m.Inject(windows.Fault{Changing: true, At: at, Times: 1, Action: windows.DieBefore})
		if err := run(calls); !errors.Is(err, windows.ErrDied) {
			t.Errorf("at %d: %v", at, err)
		}
		if left := m.Exists(`C:\Users\a`); left != (at == 2) {
			t.Errorf("at %d: the directory is there: %v", at, left)
		}
	}
}

// Targets name what a call acts on, below a drive's root as well.
func TestCall_namesItsTargets(t *testing.T) {
	m, calls, number, volume := mounted(t)
	stop := m.Record()
	must(t, openRoot(t, calls, `C:\`).Mkdir("top"))
	must(t, openRoot(t, calls, folder).Mkdir("inside"))
	control(t, openDisk(t, calls, number), win32.IoctlDiskUpdateProperties, nil)
	trace := stop()
	for _, c := range []struct{ name, target string }{
		{"Directory.Mkdir", `C:\top`}, {"Directory.Mkdir", folder + `\inside`}, {"Directory.Mkdir", volume},
		{"Directory.Mkdir", "disk 1"}, {"Directory.Mkdir", "a"}, {"IOCTL_DISK_UPDATE_PROPERTIES", "disk 1"}, {"Devices.OpenDisk", "a"},
	} {
		if !slices.ContainsFunc(trace, func(call windows.Call) bool { return call.Matches(c.name, c.target) }) {
			t.Errorf("no %s on %s in %+v", c.name, c.target, trace)
		}
	}
}
