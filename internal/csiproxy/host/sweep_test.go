package host

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

// scenario is an operation of several calls, and what must be so after it.
type scenario struct {
	name    string
	prepare func(t *testing.T) *rig
	// run is the operation; it is repeated by a new process after a crash.
	run   func(ctx context.Context, h api.Host) error
	check func(t *testing.T, r *rig, h api.Host)
}

// sweep lets the process die before and after each call of the operation, and
// lets each call fail, and pretend to have succeeded. After a death or a failure
// the repetition converges and nothing was lost; a false success that left the
// goal unreached was an error.
func (s scenario) sweep(t *testing.T) {
	var calls []windows.Call
	synctest.Test(t, func(t *testing.T) {
		r := s.prepare(t)
		h := r.host()
		stop := r.machine.Record()
		mustDo(t, s.run(t.Context(), h))
		calls = stop()
		s.verify(t, r, h)
	})
	for _, at := range windows.Sweep(calls) {
		call := calls[at-1]
		for _, action := range []windows.Action{windows.DieBefore, windows.DieAfter, windows.Fail, windows.FailAfter, windows.Pretend} {
			if !call.Changes && action != windows.DieBefore && action != windows.Fail {
				continue
			}
			fault := windows.Fault{At: at, Times: 1, Action: action, Errno: 1117}
			t.Run(fmt.Sprintf("%s at call %d of %d, %s", action, at, len(calls), call.Name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { s.once(t, fault) })
			})
		}
	}
	t.Logf("%d calls", len(calls))
}

func (s scenario) once(t *testing.T, fault windows.Fault) {
	t.Helper()
	r := s.prepare(t)
	h := r.host()
	injected := r.machine.Inject(fault)
	err := s.run(t.Context(), h)
	injected.Remove()
	if err == nil { // then the goal is reached, by this process or in spite of the fault
		if fault.Action == windows.Pretend || fault.Action == windows.Fail || fault.Action == windows.FailAfter {
			s.verify(t, r, h)
		}
	}
	again := r.host()
	if err := s.run(t.Context(), again); err != nil {
		t.Errorf("the repetition: %v", err)
		return
	}
	s.verify(t, r, again)
}

func (s scenario) verify(t *testing.T, r *rig, h api.Host) {
	t.Helper()
	s.check(t, r, h)
	if losses := r.machine.Losses(); len(losses) > 0 {
		t.Errorf("lost: %q", losses)
	}
	mustDo(t, r.machine.Check())
}

const cloudSerial = "vol0123456789abcdef0_00000001."

func cloudDisk(size int64) windows.DiskSpec {
	return windows.DiskSpec{Serial: cloudSerial, Size: size}
}

// blankRig has a blank disk 1 that a SAN policy keeps offline and read-only.
func blankRig(t *testing.T) *rig {
	r := newRig(t, windows.Options{SANPolicy: windows.OfflineAll})
	r.machine.MustAddDisk(cloudDisk(10 * gibi))
	return r
}

// volumeRig has a volume on disk 1, formatted or not.
func volumeRig(t *testing.T, fileSystem string) *rig {
	r := newRig(t, windows.Options{})
	spec := cloudDisk(10 * gibi)
	spec.Style, spec.FileSystem = "data", fileSystem
	r.machine.MustAddDisk(spec)
	mustDo(t, r.machine.MkdirAll(stagingDir))
	return r
}

func onlyVolume(ctx context.Context, h api.Host) (string, error) {
	names, err := h.Volumes.OnDisk(ctx, 1, 0)
	if err != nil {
		return "", err
	}
	if len(names) != 1 {
		return "", fmt.Errorf("volumes %q", names)
	}
	return names[0], nil
}

// withOnly runs an operation on the only volume of disk 1.
func withOnly(do func(ctx context.Context, h api.Host, volume string) error) func(context.Context, api.Host) error {
	return func(ctx context.Context, h api.Host) error {
		volume, err := onlyVolume(ctx, h)
		if err != nil {
			return err
		}
		return do(ctx, h, volume)
	}
}

func scenarios() []scenario {
	mounted := func(t *testing.T) *rig {
		r := volumeRig(t, "NTFS")
		mustDo(t, withOnly(func(ctx context.Context, h api.Host, volume string) error {
			return h.Volumes.Mount(ctx, volume, stagingDir)
		})(t.Context(), r.host()))
		return r
	}
	grown := func(t *testing.T) *rig {
		r := mounted(t)
		mustDo(t, r.machine.WriteFile(stagingDir+`\data`, 1000))
		mustDo(t, r.machine.GrowDisk(1, 20*gibi))
		return r
	}
	portal := api.Portal{Address: "10.0.0.1"}
	connected := func(t *testing.T) *rig {
		r := targetRig(t)
		mustDo(t, connect(t.Context(), r.host()))
		return r
	}
	return []scenario{
		{"partition", blankRig,
			func(ctx context.Context, h api.Host) error {
				_, err := h.Disks.Partition(ctx, 1, api.Identity{})
				return err
			},
			func(t *testing.T, _ *rig, h api.Host) {
				volume, err := onlyVolume(t.Context(), h)
				mustDo(t, err)
				if again, err := h.Disks.Partition(t.Context(), 1, api.Identity{}); again != volume || err != nil {
					t.Errorf("%q, %v; the volume is %q", again, err, volume)
				}
			}},
		{"format", func(t *testing.T) *rig { return volumeRig(t, "") },
			withOnly(func(ctx context.Context, h api.Host, volume string) error {
				if fs, err := h.Volumes.FileSystem(ctx, volume); fs != "" || err != nil { // as all callers do
					return err
				}
				return h.Volumes.Format(ctx, volume, "")
			}),
			func(t *testing.T, _ *rig, h api.Host) {
				volume, err := onlyVolume(t.Context(), h)
				mustDo(t, err)
				if fs, err := h.Volumes.FileSystem(t.Context(), volume); fs != "NTFS" || err != nil {
					t.Errorf("%q, %v", fs, err)
				}
			}},
		{"mount", func(t *testing.T) *rig { return volumeRig(t, "NTFS") },
			withOnly(func(ctx context.Context, h api.Host, volume string) error {
				return h.Volumes.Mount(ctx, volume, stagingDir)
			}),
			func(t *testing.T, _ *rig, h api.Host) {
				volume, err := onlyVolume(t.Context(), h)
				mustDo(t, err)
				if at, err := h.Volumes.At(t.Context(), stagingDir); at != volume || err != nil {
					t.Errorf("%q, %v", at, err)
				}
			}},
		{"unmount", mounted,
			withOnly(func(ctx context.Context, h api.Host, volume string) error {
				return h.Volumes.Unmount(ctx, volume, stagingDir)
			}),
			func(t *testing.T, r *rig, _ api.Host) {
				if info, err := r.machine.Lstat(stagingDir); err != nil || info.IsReparse() || !info.IsDir() {
					t.Errorf("%+v, %v", info, err)
				}
			}},
		{"resize", grown,
			withOnly(func(ctx context.Context, h api.Host, volume string) error {
				_, err := h.Volumes.Resize(ctx, volume, 20*gibi)
				return err
			}),
			func(t *testing.T, r *rig, h api.Host) {
				volume, err := onlyVolume(t.Context(), h)
				mustDo(t, err)
				if stats, err := h.Volumes.Stats(t.Context(), volume); err != nil || stats.Total < 20*gibi-20*mebi {
					t.Errorf("%+v, %v", stats, err)
				}
				if !r.machine.Exists(stagingDir + `\data`) {
					t.Error("the data is gone")
				}
			}},
		{"offline", mounted,
			func(ctx context.Context, h api.Host) error { return h.Disks.SetOnline(ctx, 1, api.Identity{}, false) },
			func(t *testing.T, _ *rig, h api.Host) {
				if online, err := h.Disks.Online(t.Context(), 1); online || err != nil {
					t.Error(online, err)
				}
			}},
		{"online", blankRig,
			func(ctx context.Context, h api.Host) error { return h.Disks.SetOnline(ctx, 1, api.Identity{}, true) },
			func(t *testing.T, _ *rig, h api.Host) {
				disks, err := h.Disks.List(t.Context())
				if err != nil || !disks[1].Online || disks[1].ReadOnly {
					t.Errorf("%+v, %v", disks, err)
				}
			}},
		{"share", shareRig,
			func(ctx context.Context, h api.Host) error { return h.SMB.Mount(ctx, alice(at("a"))) },
			func(t *testing.T, r *rig, h api.Host) {
				if link, err := h.Filesystem.IsLink(t.Context(), at("a")); !link || err != nil || r.mappedUser(shareKeyed) != "alice" {
					t.Error(link, err)
				}
			}},
		{"share's end", func(t *testing.T) *rig {
			r := shareRig(t)
			mustDo(t, r.host().SMB.Mount(t.Context(), alice(at("a"))))
			return r
		},
			func(ctx context.Context, h api.Host) error { return h.SMB.Unmount(ctx, shareRemote, at("a")) },
			func(t *testing.T, r *rig, _ api.Host) {
				if user := r.mappedUser(shareKeyed); user != "" || r.machine.Exists(at("a")) {
					t.Errorf("mapped for %q", user)
				}
			}},
		{"connect", targetRig, connect,
			func(t *testing.T, r *rig, h api.Host) {
				if numbers, err := h.ISCSI.Disks(t.Context(), portal, targetName); len(numbers) != 1 || err != nil {
					t.Error(numbers, err)
				}
				r.machine.Reboot()
				fresh := r.host()
				if numbers, err := fresh.ISCSI.Disks(t.Context(), portal, targetName); len(numbers) != 1 || err != nil {
					t.Error("after a restart:", numbers, err)
				}
			}},
		{"disconnect", connected,
			func(ctx context.Context, h api.Host) error { return h.ISCSI.Disconnect(ctx, portal, targetName) },
			func(t *testing.T, _ *rig, h api.Host) {
				if numbers, err := h.ISCSI.Disks(t.Context(), portal, targetName); len(numbers) != 0 || err != nil {
					t.Error(numbers, err)
				}
			}},
	}
}

const targetName = "iqn.2026-01.example.storage:disk1"

// targetRig has a target in the network that requires CHAP.
func targetRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, windows.Options{})
	mustDo(t, r.machine.AddTarget(windows.ISCSITarget{
		Portal: api.Portal{Address: "10.0.0.1"}, IQN: targetName, User: "chapuser", Secret: "chapsecret-1234", MutualSecret: "mutual-secret-1",
		LUNs: []windows.DiskSpec{{Serial: "LUN0", Size: gibi}},
	}))
	return r
}

func chapLogin() api.ISCSILogin {
	return api.ISCSILogin{Portal: api.Portal{Address: "10.0.0.1"}, IQN: targetName, Auth: api.OneWayCHAP,
		Username: "chapuser", Secret: "chapsecret-1234"}
}

func connect(ctx context.Context, h api.Host) error {
	if err := h.ISCSI.AddPortal(ctx, api.Portal{Address: "10.0.0.1"}); err != nil {
		return err
	}
	return h.ISCSI.Connect(ctx, chapLogin())
}

func shareRig(t *testing.T) *rig {
	r, _ := smbRig(t)
	return r
}

// Crash, failure and false success at every call of every operation.
func TestOperations_convergeFromEveryCall(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.name, s.sweep)
	}
}
