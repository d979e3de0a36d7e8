package host

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/winetest"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

const (
	kubeletDir = `C:\var\lib\kubelet`
	stagingDir = kubeletDir + `\plugins\driver\globalmount`
)

// rig is a simulated machine with the hosts that come and go on it.
type rig struct {
	t       *testing.T
	machine *windows.Machine
	state   string
	log     *bytes.Buffer
}

func newRig(t *testing.T, options windows.Options) *rig {
	t.Helper()
	return &rig{t: t, machine: windows.New(options), state: winetest.Dir(t)}
}

// host is a fresh process on the machine.
func (r *rig) host() api.Host {
	r.t.Helper()
	rules, err := paths.New(kubeletDir)
	if err != nil {
		r.t.Fatal(err)
	}
	logger := slog.New(slog.DiscardHandler)
	if r.log != nil {
		logger = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	h, err := New(Options{
		Machine: r.machine.Calls(), Rules: rules, Services: []string{"MSiSCSI", "Spooler"},
		RequirePrivacy: true, StateDir: r.state, Logger: logger,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	h.proofs.rounds = 10 // a test needs no slow hash
	r.t.Cleanup(h.Close)
	return h.API()
}

// inBubble runs a test on a clock that waits for nothing.
func inBubble(test func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError checks the sentinel of an error and what its text has.
func wantError(t *testing.T, err, sentinel error, texts ...string) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Errorf("%v; want %v", err, sentinel)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q lacks %q", err, text)
		}
	}
}

// A blank disk of a cloud, from its arrival to a mounted volume and back.
func TestDisk_fromBlankToMountedAndBack(t *testing.T) {
	r := newRig(t, windows.Options{})
	h, ctx := r.host(), t.Context()
	disk := r.machine.MustAddDisk(windows.DiskSpec{Serial: "vol0123456789abcdef0_00000001.", Size: 10 * gibi})

	all, err := h.Disks.List(ctx)
	mustDo(t, err)
	if len(all) != 2 || all[1].Number != disk || all[1].SerialNumber != "vol0123456789abcdef0_00000001." ||
		all[1].Problem != nil || !all[1].Online {
		t.Fatalf("%+v", all)
	}
	volume, err := h.Disks.Partition(ctx, disk, api.Identity{})
	mustDo(t, err)
	mustDo(t, h.Volumes.Format(ctx, volume, ""))
	mustDo(t, h.Filesystem.Mkdir(ctx, stagingDir))
	mustDo(t, h.Volumes.Mount(ctx, volume, stagingDir))
	if at, err := h.Volumes.At(ctx, stagingDir); at != volume || err != nil {
		t.Errorf("at %s is %s, %v", stagingDir, at, err)
	}
	mustDo(t, h.Volumes.Unmount(ctx, volume, stagingDir))
	// The order of drivers: the disk is asked for after the unmount.
	if n, err := h.Volumes.DiskOf(ctx, volume); n != disk || err != nil {
		t.Errorf("disk %d, %v", n, err)
	}
	mustDo(t, h.Disks.SetOnline(ctx, disk, api.Identity{}, false))
	if online, err := h.Disks.Online(ctx, disk); online || err != nil {
		t.Error(online, err)
	}
}
