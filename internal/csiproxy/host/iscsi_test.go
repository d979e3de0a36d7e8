package host

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

var targetPortal = api.Portal{Address: "10.0.0.1"}

// A LUN, from its portal to its disk and back; the session survives a restart.
func TestISCSI_connectsAndDisconnects(t *testing.T) {
	r := targetRig(t)
	h, ctx := r.host(), t.Context()
	_, err := h.ISCSI.Discover(ctx, targetPortal)
	wantError(t, err, backend.ErrNotFound, "has not been added")
	for range 2 { // repeated calls are fine
		mustDo(t, h.ISCSI.AddPortal(ctx, targetPortal))
	}
	if portals, err := h.ISCSI.Portals(ctx); err != nil || !slices.Equal(portals, []api.Portal{{Address: "10.0.0.1", Port: 3260}}) {
		t.Errorf("%+v, %v", portals, err)
	}
	if names, err := h.ISCSI.Discover(ctx, targetPortal); err != nil || !slices.Equal(names, []string{targetName}) {
		t.Errorf("%q, %v", names, err)
	}
	if numbers, err := h.ISCSI.Disks(ctx, targetPortal, targetName); len(numbers) > 0 || err != nil {
		t.Errorf("without a session: %v, %v", numbers, err)
	}
	for range 2 {
		mustDo(t, h.ISCSI.Connect(ctx, chapLogin()))
	}
	if numbers, err := h.ISCSI.Disks(ctx, targetPortal, targetName); err != nil || !slices.Equal(numbers, []uint32{1}) {
		t.Errorf("%v, %v", numbers, err)
	}
	r.machine.Reboot()
	h = r.host()
	if numbers, err := h.ISCSI.Disks(ctx, targetPortal, strings.ToUpper(targetName)); err != nil || len(numbers) != 1 {
		t.Errorf("after a restart: %v, %v", numbers, err)
	}
	for range 2 {
		mustDo(t, h.ISCSI.Disconnect(ctx, targetPortal, targetName))
		mustDo(t, h.ISCSI.RemovePortal(ctx, targetPortal))
	}
	r.machine.Reboot()
	if sessions := r.machine.State().Sessions; len(sessions) > 0 {
		t.Errorf("%q came back", sessions)
	}
}

// A session that Windows forgets at its end is completed, as one is that upstream
// or a crash left.
func TestISCSI_connectKeepsASessionThatWasNotKept(t *testing.T) {
	r := targetRig(t)
	h, ctx := r.host(), t.Context()
	mustDo(t, h.ISCSI.AddPortal(ctx, targetPortal))
	if _, err := r.machine.Calls().ISCSI.Login(ctx, chapLogin()); err != nil {
		t.Fatal(err)
	}
	mustDo(t, h.ISCSI.Connect(ctx, chapLogin()))
	r.machine.Reboot()
	if numbers, err := r.host().ISCSI.Disks(ctx, targetPortal, targetName); err != nil || len(numbers) != 1 {
		t.Errorf("%v, %v", numbers, err)
	}
}

func TestISCSI_mutualCHAP(t *testing.T) {
	r := targetRig(t)
	h, ctx := r.host(), t.Context()
	mustDo(t, h.ISCSI.AddPortal(ctx, targetPortal))
	login := chapLogin()
	login.Auth = api.MutualCHAP
	wantError(t, h.ISCSI.Connect(ctx, login), backend.ErrCredentials)
	mustDo(t, h.ISCSI.SetMutualSecret(ctx, "mutual-secret-1"))
	mustDo(t, h.ISCSI.Connect(ctx, login))
}

// Values out of range are rejected, not truncated, before any call of Windows.
func TestISCSI_refusesBadInput(t *testing.T) {
	r := targetRig(t)
	h, ctx := r.host(), t.Context()
	stop := r.machine.Record()
	for _, portal := range []api.Portal{
		{}, {Port: 3260}, {Address: "10.0.0.1", Port: 65536}, {Address: "10.0.0.1", Port: 65536 + 3260},
		{Address: "10.0.0.1:3260"}, {Address: "a b"}, {Address: "0.0.0.0"},
		{Address: "::"}, {Address: "224.0.0.1"}, {Address: `\\server`}, {Address: "-x"}, {Address: "a..b"},
		{Address: strings.Repeat("a", 300)}, {Address: "host\x00"},
	} {
		for name, err := range map[string]error{
			"AddPortal": h.ISCSI.AddPortal(ctx, portal), "Discover": second(h.ISCSI.Discover(ctx, portal)),
			"RemovePortal": h.ISCSI.RemovePortal(ctx, portal),
			"Connect":      h.ISCSI.Connect(ctx, api.ISCSILogin{Portal: portal, IQN: targetName}),
			"Disconnect":   h.ISCSI.Disconnect(ctx, portal, targetName),
			"Disks":        second(h.ISCSI.Disks(ctx, portal, targetName)),
		} {
			if !errors.Is(err, backend.ErrInvalid) {
				t.Errorf("%s of %+v: %v", name, portal, err)
			}
		}
	}
	for _, name := range []string{
		"", "disk1", "iqn.", "iqn.2026-01", "iqn.2026-01.", "iqn.2026-13.a:b", "iqn.26-01.a:b", "iqn.2026-01.a:b c",
		"iqn.2026-01.a:'b", "eui.123", "eui.02004567A425678X",
		"naa.123", "iqn.2026-01.a:" + strings.Repeat("x", 223), "iqn.2026-01.:x", "iqn.2026-00.a:b",
	} {
		if err := h.ISCSI.Connect(ctx, api.ISCSILogin{Portal: targetPortal, IQN: name}); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, change := range map[string]func(*api.ISCSILogin){
		"a short secret": func(l *api.ISCSILogin) { l.Secret = "12345678901" },
		"a long secret":  func(l *api.ISCSILogin) { l.Secret = "12345678901234567" },
		"no user":        func(l *api.ISCSILogin) { l.Username = "" }, "an unknown kind": func(l *api.ISCSILogin) { l.Auth = 7 },
	} {
		login := chapLogin()
		change(&login)
		if err := h.ISCSI.Connect(ctx, login); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, secret := range []api.Secret{"", "12345678901", "12345678901234567"} {
		if err := h.ISCSI.SetMutualSecret(ctx, secret); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("a secret of %d bytes: %v", len(secret.Reveal()), err)
		}
	}
	if calls := stop(); len(calls) > 0 {
		t.Errorf("%+v were called", calls)
	}
	for _, name := range []string{targetName, "iqn.2001-04.com.example", "IQN.1991-05.com.microsoft:Host_1", "eui.02004567A425678D", "naa.52004567BA64678D", "naa.62004567BA64678D0123456789ABCDEF"} {
		mustDo(t, checkIQN(name))
	}
	for _, address := range []string{"10.0.0.1", "fd00::1", "storage.example.com", "NAS_1", "host."} {
		if p, err := checkPortal(api.Portal{Address: address}); err != nil || p.Port != 3260 {
			t.Errorf("%q: %+v, %v", address, p, err)
		}
	}
}

func TestISCSI_explainsItsErrors(t *testing.T) { inBubble(tellsWhatIsWrong)(t) }

func tellsWhatIsWrong(t *testing.T) {
	r := targetRig(t)
	h, ctx := r.host(), t.Context()
	wantError(t, h.ISCSI.AddPortal(ctx, api.Portal{Address: "10.9.9.9"}), backend.ErrUnavailable, "10.9.9.9",
		"ISDSC_CONNECTION_FAILED (0XEFFF0003)")
	mustDo(t, h.ISCSI.AddPortal(ctx, targetPortal))
	login := chapLogin()
	login.Secret = "wrong-secret-12"
	wantError(t, h.ISCSI.Connect(ctx, login), backend.ErrCredentials, "ISDSC_AUTHENTICATION_FAILURE")
	login = chapLogin()
	login.Auth = api.NoAuth
	wantError(t, h.ISCSI.Connect(ctx, login), backend.ErrCredentials)
	login.IQN = "iqn.2026-01.example.storage:unknown"
	wantError(t, h.ISCSI.Connect(ctx, login), backend.ErrNotFound, "ISDSC_TARGET_NOT_FOUND")
	r.machine.SetTargetReachable(targetName, false)
	wantError(t, h.ISCSI.Connect(ctx, chapLogin()), backend.ErrUnavailable, "ISDSC_CONNECTION_FAILED")
	r.machine.SetTargetReachable(targetName, true)
	mustDo(t, h.ISCSI.Connect(ctx, chapLogin()))

	// A volume of the target that is in use keeps the session.
	volume, err := h.Disks.Partition(ctx, 1, api.Identity{})
	if err == nil {
		err = h.Volumes.Format(ctx, volume, "")
	}
	mustDo(t, err)
	mustDo(t, r.machine.MkdirAll(stagingDir))
	mustDo(t, h.Volumes.Mount(ctx, volume, stagingDir))
	mustDo(t, r.machine.WriteFile(stagingDir+`\file`, 1))
	file, err := r.machine.Open(stagingDir+`\file`, true)
	mustDo(t, err)
	wantError(t, h.ISCSI.Disconnect(ctx, targetPortal, targetName), backend.ErrInUse, targetName, "ISDSC_DEVICE_BUSY_ON_SESSION")
	file.Close()
	mustDo(t, h.ISCSI.Disconnect(ctx, targetPortal, targetName))
}

func TestISCSI_waitsForTheFirstDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, windows.Options{DeviceDelay: 5 * time.Second})
		mustDo(t, r.machine.AddTarget(windows.ISCSITarget{
			Portal: targetPortal, IQN: targetName, LUNs: []windows.DiskSpec{{Serial: "L", Size: gibi}},
		}))
		empty := targetName + "-empty"
		mustDo(t, r.machine.AddTarget(windows.ISCSITarget{Portal: targetPortal, IQN: empty}))
		h, ctx := r.host(), t.Context()
		mustDo(t, h.ISCSI.AddPortal(ctx, targetPortal))
		mustDo(t, h.ISCSI.Connect(ctx, api.ISCSILogin{Portal: targetPortal, IQN: targetName}))
		mustDo(t, h.ISCSI.Connect(ctx, api.ISCSILogin{Portal: targetPortal, IQN: empty}))
		if numbers, err := h.ISCSI.Disks(ctx, targetPortal, targetName); len(numbers) != 1 || err != nil {
			t.Errorf("%v, %v", numbers, err)
		}
		start := time.Now()
		if numbers, err := h.ISCSI.Disks(ctx, targetPortal, empty); len(numbers) != 0 || err != nil ||
			time.Since(start) > deviceLimit+time.Second {
			t.Errorf("a target without disks: %v, %v after %s", numbers, err, time.Since(start))
		}
	})
}

func TestISCSI_startsItsService(t *testing.T) {
	r := targetRig(t)
	mustDo(t, r.machine.AddService(windows.ServiceSpec{Name: "MSiSCSI", StartDelay: 10 * time.Millisecond}))
	mustDo(t, r.host().ISCSI.AddPortal(t.Context(), targetPortal))
	mustDo(t, r.machine.AddService(windows.ServiceSpec{Name: "MSiSCSI", StartType: serviceDisabled}))
	wantError(t, r.host().ISCSI.AddPortal(t.Context(), targetPortal), backend.ErrPrecondition, "MSiSCSI", "ERROR_SERVICE_DISABLED (1058)")
}

func TestSystem_knowsConfiguredServicesOnly(t *testing.T) {
	r := newRig(t, windows.Options{BIOSSerial: "ec2-1234"})
	mustDo(t, r.machine.AddService(windows.ServiceSpec{Name: "MpsSvc", Running: true}))
	mustDo(t, r.machine.AddService(windows.ServiceSpec{Name: "Spooler", DisplayName: "Print Spooler", StartType: 2, Running: true}))
	h, ctx := r.host(), t.Context()
	// Any name was taken.
	for _, name := range []string{"MpsSvc", "csiproxy", "", "Spooler ", "MSiSCSI\x00"} {
		wantError(t, h.System.StopService(ctx, name, true), backend.ErrNotFound)
		wantError(t, h.System.StartService(ctx, name), backend.ErrNotFound)
		_, err := h.System.Service(ctx, name)
		wantError(t, err, backend.ErrNotFound)
	}
	if state := r.machine.State().Services["MpsSvc"]; state != serviceRunning {
		t.Errorf("the firewall's state is %d", state)
	}
	service, err := h.System.Service(ctx, "SPOOLER")
	if want := (api.Service{DisplayName: "Print Spooler", StartType: 2, Status: serviceRunning}); service != want || err != nil {
		t.Errorf("%+v, %v", service, err)
	}
	if serial, err := h.System.BIOSSerialNumber(ctx); serial != "ec2-1234" || err != nil {
		t.Errorf("%q, %v", serial, err)
	}
}

func TestSystem_startsAndStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, windows.Options{})
		mustDo(t, r.machine.AddService(windows.ServiceSpec{Name: "Spooler", StartDelay: 3 * time.Second, StopDelay: 2 * time.Second}))
		mustDo(t, r.machine.AddService(windows.ServiceSpec{Name: "Fax", DependsOn: []string{"Spooler"}, Running: true}))
		mustDo(t, r.machine.AddService(windows.ServiceSpec{Name: "FaxWeb", DependsOn: []string{"Fax"}, Running: true}))
		h, ctx := r.host(), t.Context()
		for range 2 {
			mustDo(t, h.System.StartService(ctx, "spooler"))
		}
		wantError(t, h.System.StopService(ctx, "spooler", false), backend.ErrPrecondition, "Fax", "ERROR_DEPENDENT_SERVICES_RUNNING (1051)")
		for range 2 {
			mustDo(t, h.System.StopService(ctx, "spooler", true))
		}
		for _, name := range []string{"Spooler", "Fax", "FaxWeb"} {
			if state := r.machine.State().Services[name]; state != serviceStopped {
				t.Errorf("%s: %d", name, state)
			}
		}
		mustDo(t, r.machine.AddService(windows.ServiceSpec{Name: "Spooler", StartDelay: time.Hour}))
		start := time.Now()
		wantError(t, h.System.StartService(ctx, "spooler"), backend.ErrUnavailable, "30s")
		if took := time.Since(start); took > serviceLimit+time.Second {
			t.Errorf("after %s", took)
		}
		mustDo(t, r.machine.AddService(windows.ServiceSpec{Name: "Spooler", StartError: win32.ErrorServiceLogonFailed}))
		wantError(t, h.System.StartService(ctx, "spooler"), backend.ErrPrecondition, "ERROR_SERVICE_LOGON_FAILED (1069)")
	})
}

func FuzzCheckIQN(f *testing.F) {
	f.Add(targetName)
	f.Add("eui.02004567A425678D")
	f.Add("fe80::1%eth0")
	f.Add("::% ") // the zone of an address may be any text for package netip
	f.Fuzz(func(t *testing.T, name string) {
		if err := checkIQN(name); err == nil && (len(name) > maxISCSIName || strings.ContainsAny(name, " \\/\"'\x00")) {
			t.Fatalf("%q", name)
		}
		if p, err := checkPortal(api.Portal{Address: name}); err == nil &&
			(p.Port != defaultPortalPort || strings.ContainsAny(p.Address, " \\/\"'\x00")) {
			t.Fatalf("%q", name)
		}
	})
}

// A session and its devices are busy for a while after the login: the operations
// wait for it, no longer than is reasonable, and no longer than their caller does.
func TestISCSI_waitsForABusySession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := targetRig(t)
		r.machine.SetOptions(func(o *windows.Options) { o.SessionBusy, o.DeviceDelay = 5*time.Second, time.Second })
		h := r.host()
		mustDo(t, connect(t.Context(), h))
		if numbers, err := h.ISCSI.Disks(t.Context(), targetPortal, targetName); err != nil || len(numbers) != 1 {
			t.Errorf("%v, %v", numbers, err)
		}
		mustDo(t, h.ISCSI.Disconnect(t.Context(), targetPortal, targetName))

		r.machine.SetOptions(func(o *windows.Options) { o.SessionBusy = time.Hour })
		start := time.Now()
		wantError(t, h.ISCSI.Connect(t.Context(), chapLogin()), backend.ErrInUse, "ISDSC_SESSION_BUSY")
		if took := time.Since(start); took > 2*time.Minute {
			t.Errorf("it gave up after %s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.ISCSI.Disconnect(ctx, targetPortal, targetName); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that leaves: %v", err)
		}
	})
}

// After any calls in any order, on an initiator that is slow and fails, the connected
// targets, and no others, are connected again after a restart.
func TestISCSI_anyOrderOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		noDeadline := struct{ testing.TB }{t} // which rapid asks a *testing.T for, and no bubble gives
		rapid.Check(noDeadline, func(d *rapid.T) {
			r := targetRig(t)
			seconds := rapid.IntRange(0, 4)
			r.machine.SetOptions(func(o *windows.Options) {
				o.SessionBusy = time.Duration(seconds.Draw(d, "busy")) * time.Second
				o.DeviceDelay = time.Duration(seconds.Draw(d, "devices")) * time.Second
			})
			h, ctx := r.host(), t.Context()
			mustDo(t, h.ISCSI.AddPortal(ctx, targetPortal))
			connected := false
			// finish repeats a call that has failed, as plugins do.
			finish := func(what string, call func() error) {
				err := call()
				for range 2 {
					if err != nil {
						err = call()
					}
				}
				if err != nil {
					d.Fatalf("%s: %v", what, err)
				}
			}
			d.Repeat(map[string]func(*rapid.T){
				"connect": func(d *rapid.T) {
					fault := r.machine.Inject(windows.Fault{
						Call:   rapid.SampledFrom([]string{"ISCSI.Login", "ISCSI.Persist", "ISCSI.Sessions", "none"}).Draw(d, "fails"),
						Action: windows.Fail, Errno: win32.ISDSCNonSpecificError, Times: 1,
					})
					defer fault.Remove()
					finish("connect", func() error { return h.ISCSI.Connect(ctx, chapLogin()) })
					connected = true
				},
				"disconnect": func(*rapid.T) {
					finish("disconnect", func() error { return h.ISCSI.Disconnect(ctx, targetPortal, targetName) })
					connected = false
				},
				"restart": func(*rapid.T) {
					r.machine.Reboot()
					h = r.host()
				},
				"": func(d *rapid.T) {
					numbers, err := h.ISCSI.Disks(ctx, targetPortal, targetName)
					if err != nil || (len(numbers) == 1) != connected {
						d.Fatalf("connected %t, and the disks are %v, %v", connected, numbers, err)
					}
				},
			})
		})
	})
}
