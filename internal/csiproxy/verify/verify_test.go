package verify_test

import (
	"testing"
	"testing/synctest"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/host"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	winverify "github.com/holdfast-csi/holdfast/internal/csiproxy/verify"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/internal/verify"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

const directory = `C:\Users\verify`

// run verifies a simulated machine with one blank disk.
func run(t *testing.T, spec windows.DiskSpec, change func(*windows.Machine, *winverify.Options)) (*windows.Machine, map[string]verify.Finding) {
	t.Helper()
	m := windows.New(windows.Options{})
	spec.Serial, spec.Size = "vol0123", 1<<30
	number := m.MustAddDisk(spec)
	if err := m.MkdirAll(directory); err != nil {
		t.Fatal(err)
	}
	calls := m.Calls()
	rules, err := paths.New(directory)
	if err != nil {
		t.Fatal(err)
	}
	api, err := host.New(host.Options{Machine: calls, Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	ledger := &verify.Ledger{}
	o := winverify.Options{Machine: calls, Host: api.API(), Dir: directory, Disk: number, Serial: spec.Serial, Ledger: ledger}
	if change != nil {
		change(m, &o)
	}
	found := map[string]verify.Finding{}
	verify.Run(t.Context(), winverify.New(o).Checks(), func(f verify.Finding) {
		if _, twice := found[f.ID]; twice {
			t.Errorf("two checks have the ID %s", f.ID)
		}
		found[f.ID] = f
	})
	if err := ledger.CleanUp(t.Context()); err != nil {
		t.Error(err)
	}
	if left, err := m.List(directory); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	return m, found
}

func TestChecks_allHoldOnTheSimulatedMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, found := run(t, windows.DiskSpec{}, nil)
		untested := 0
		for id, f := range found {
			if f.Outcome == verify.Differs {
				t.Errorf("%s: %s", id, f.Seen)
			}
			if f.Outcome == verify.Untested {
				untested++
			}
		}
		if untested != 9 { // those that need a server, a restart or a second program
			t.Errorf("%d are not tested", untested)
		}
		if losses := m.Losses(); len(losses) > 0 {
			t.Errorf("overwritten: %q", losses)
		}
	})
}

// A disk with data, or with another serial number than the caller gave, is not touched.
func TestDisk_isTouchedOnlyIfItIsTheNamedBlankOne(t *testing.T) {
	for name, c := range map[string]struct {
		spec   windows.DiskSpec
		change func(*windows.Machine, *winverify.Options)
	}{
		"a partition with NTFS":   {windows.DiskSpec{Style: "data", FileSystem: "NTFS"}, nil},
		"an empty GPT":            {windows.DiskSpec{Style: "gpt"}, nil},
		"data without partitions": {windows.DiskSpec{Noise: true}, nil},
		"another serial number":   {windows.DiskSpec{}, func(_ *windows.Machine, o *winverify.Options) { o.Serial = "vol9999" }},
		"no serial number":        {windows.DiskSpec{}, func(_ *windows.Machine, o *winverify.Options) { o.Serial = "" }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, found := run(t, c.spec, func(m *windows.Machine, o *winverify.Options) {
					if c.change != nil {
						c.change(m, o)
					}
				})
				if f := found["win-format"]; f.Outcome != verify.Untested {
					t.Errorf("formatted: %s, %s", f.Outcome, f.Seen)
				}
				if losses := m.Losses(); len(losses) > 0 {
					t.Errorf("overwritten: %q", losses)
				}
			})
		})
	}
}

// A Windows that refuses or pretends is found: every call fails with a number that no check
// expects, or answers success without an effect.
func TestChecks_findAnotherWindows(t *testing.T) {
	accepts := map[string]bool{"win-mount-unknown-volume": true} // whatever the number is
	for name, action := range map[string]windows.Fault{
		"every call fails": {Action: windows.Fail, Errno: win32.ErrorCRC},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, found := run(t, windows.DiskSpec{}, func(m *windows.Machine, _ *winverify.Options) { m.Inject(action) })
				for id, f := range found {
					if f.Outcome == verify.Holds && !accepts[id] {
						t.Errorf("%s holds: %s", id, f.Seen)
					}
				}
			})
		})
	}
}

func TestCheckDir_refusesADirectoryThatHasEntries(t *testing.T) {
	m := windows.New(windows.Options{})
	if err := m.MkdirAll(directory + `\mount`); err != nil {
		t.Fatal(err)
	}
	session := winverify.New(winverify.Options{Machine: m.Calls(), Dir: directory})
	if err := session.CheckDir(); err == nil {
		t.Error("a directory with an entry is used")
	}
	if err := m.Remove(directory + `\mount`); err != nil {
		t.Fatal(err)
	}
	if err := session.CheckDir(); err != nil {
		t.Error(err)
	}
}
