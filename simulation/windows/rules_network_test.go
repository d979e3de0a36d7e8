package windows_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

// The errors of a mapping: 53 and 67 for a missing server or share, 1219 for a second
// user of a server, 65 or 87 for privacy that it cannot do, 1326 and 86 for
// credentials, 5 for rights.
func TestSMB_refusesAsServersDo(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	must(t, m.AddShare(windows.SMBShare{
		Server: "srv", Share: "data", Users: map[string]string{`DOM\ann`: "secret"}, Denied: map[string]string{"bob": "b"},
	}))
	must(t, m.AddShare(windows.SMBShare{Server: "old", Share: "data", NoEncryption: true}))
	must(t, m.AddShare(windows.SMBShare{Server: "older", Share: "data", NoEncryption: true, PrivacyError: win32.ErrorInvalidParameter}))
	create := func(remote, user, password string) error {
		return calls.SMB.Create(t.Context(), win32.SMBMappingRequest{
			Remote: remote, Username: user, Password: api.Secret(password), RequirePrivacy: true,
		})
	}
	for _, c := range []struct {
		remote, user, password string
		want                   win32.Errno
	}{
		{`\\nowhere\data`, "x", "y", win32.ErrorBadNetPath},
		{`\\srv\nothing`, "x", "y", win32.ErrorBadNetName},
		{`\\srv\data\below`, "x", "y", win32.ErrorBadNetName},
		{`C:\data`, "x", "y", win32.ErrorBadNetName},
		{`\\old\data`, "x", "y", win32.ErrorNetworkAccessDenied},
		{`\\older\data`, "x", "y", win32.ErrorInvalidParameter},
		{`\\srv\data`, "nobody", "y", win32.ErrorLogonFailure},
		{`\\srv\data`, `dom\ANN`, "Secret", win32.ErrorInvalidPassword},
		{`\\srv\data`, "bob", "b", win32.ErrorAccessDenied},
	} {
		refused(t, c.remote+" for "+c.user, create(c.remote, c.user, c.password), c.want)
	}
	_, err := calls.Files.Attributes(`\\srv\data\`)
	refused(t, "a share without a mapping", err, win32.ErrorAccessDenied)
	must(t, create(`\\SRV\data`, `dom\ann`, "secret"))
	refused(t, "a second user", create(`\\srv\data`, "bob", "b"), win32.ErrorSessionCredentialConflict)
	if _, err := calls.Files.Attributes(`\\srv\Data\deep`); err != nil {
		t.Errorf("the mapped share: %v", err)
	}
	if list, err := calls.SMB.Mappings(t.Context()); err != nil || len(list) != 1 || list[0].Status != windows.MappingOK {
		t.Errorf("mappings %+v, %v", list, err)
	}
	refused(t, "removing another", calls.SMB.Remove(t.Context(), `\\srv\elsewhere`, true), win32.ErrorNotConnected)
	f, err := m.Open(`\\srv\data\file`, true)
	must(t, err)
	defer f.Close()
	refused(t, "removing it in use", calls.SMB.Remove(t.Context(), `\\srv\data`, false), win32.ErrorOpenFiles)
	must(t, calls.SMB.Remove(t.Context(), `\\srv\DATA`, true))
}

// A mapping uses a connection. After a disconnection it connects again with the
// credentials that it was created with. A restart removes all mappings.
func TestSMB_reconnects(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	spec := windows.SMBShare{Server: "srv", Share: "data", Users: map[string]string{"ann": "old"}}
	must(t, m.AddShare(spec))
	must(t, calls.SMB.Create(t.Context(), win32.SMBMappingRequest{Remote: `\\srv\data`, Username: "ann", Password: "old"}))
	reach := func() error {
		_, err := calls.Files.Attributes(`\\srv\data`)
		return err
	}
	status := func() uint32 {
		list, err := calls.SMB.Mappings(t.Context())
		must(t, err)
		return list[0].Status
	}
	m.SetServerReachable("srv", false)
	refused(t, "a server that is away", reach(), win32.ErrorBadNetPath)
	m.SetServerReachable("srv", true)
	if status() != windows.MappingDisconnected {
		t.Errorf("status %d", status())
	}
	must(t, reach())
	if status() != windows.MappingOK {
		t.Errorf("status %d", status())
	}
	spec.Users = map[string]string{"ann": "new"}
	must(t, m.AddShare(spec))
	must(t, reach()) // the connection is up
	m.Disconnect("srv")
	refused(t, "the old password", reach(), win32.ErrorInvalidPassword)
	must(t, calls.SMB.Create(t.Context(), win32.SMBMappingRequest{Remote: `\\srv\data`, Username: "ann", Password: "new"}))
	must(t, reach())
	must(t, m.SetMappingStatus(`\\srv\data`, windows.MappingUnavailable))
	refused(t, "an unavailable mapping", reach(), win32.ErrorNetNameDeleted)
	m.Reboot()
	if list, err := calls.SMB.Mappings(t.Context()); err != nil || list != nil {
		t.Errorf("mappings %+v, %v", list, err)
	}
}

const iqn = "iqn.2026-01.com.example:disk"

var portal = api.Portal{Address: "10.0.0.1"}

// rig has a target with CHAP in both directions and one LUN.
func iscsiRig(t *testing.T, options windows.Options) (*windows.Machine, win32.Machine) {
	t.Helper()
	m, calls := machine(t, options)
	must(t, m.AddTarget(windows.ISCSITarget{
		Portal: portal, IQN: iqn, User: "u", Secret: "123456789012", MutualSecret: "abcdefghijkl",
		LUNs: []windows.DiskSpec{{Serial: "lun", Size: gibi}},
	}))
	return m, calls
}

// LoginIScsiTarget: the service must run, the target be discovered; CHAP secrets
// have 12 to 16 bytes and must be right in the directions that both want.
func TestISCSI_refusesAsTheInitiatorDoes(t *testing.T) {
	_, calls := iscsiRig(t, windows.Options{})
	ctx := t.Context()
	login := func(iqn string, auth api.AuthType, user, secret string) error {
		_, err := calls.ISCSI.Login(ctx, api.ISCSILogin{Portal: portal, IQN: iqn, Auth: auth, Username: user, Secret: api.Secret(secret)})
		return err
	}
	refused(t, "a portal without the service", calls.ISCSI.AddPortal(ctx, portal), win32.ISDSCServiceNotRunning)
	must(t, calls.Services.Start("msiscsi"))
	refused(t, "a portal that is not there", calls.ISCSI.AddPortal(ctx, api.Portal{Address: "10.9.9.9"}), win32.ISDSCConnectionFailed)
	refused(t, "a port that is none", calls.ISCSI.AddPortal(ctx, api.Portal{Address: "10.0.0.1", Port: 65536}), win32.ISDSCInvalidParameter)
	refused(t, "a target that was not discovered", login(iqn, api.NoAuth, "", ""), win32.ISDSCTargetNotFound)
	must(t, calls.ISCSI.AddPortal(ctx, portal))
	_, err := calls.ISCSI.Targets(ctx, api.Portal{Address: "10.9.9.9"}, true)
	refused(t, "the targets of a portal that was not added", err, win32.ISDSCPortalNotFound)
	if iqns, err := calls.ISCSI.Targets(ctx, portal, true); err != nil || len(iqns) != 1 || iqns[0] != iqn {
		t.Errorf("targets %q, %v", iqns, err)
	}
	refused(t, "no name", login("disk", api.NoAuth, "", ""), win32.ISDSCInvalidISCSIName)
	refused(t, "no CHAP", login(iqn, api.NoAuth, "", ""), win32.ISDSCAuthenticationFailure)
	refused(t, "a short secret", login(iqn, api.OneWayCHAP, "u", "short"), win32.ISDSCInvalidCHAPSecret)
	refused(t, "a wrong secret", login(iqn, api.OneWayCHAP, "u", "123456789013"), win32.ISDSCAuthenticationFailure)
	refused(t, "a wrong user", login(iqn, api.OneWayCHAP, "v", "123456789012"), win32.ISDSCAuthenticationFailure)
	refused(t, "no mutual secret", login(iqn, api.MutualCHAP, "u", "123456789012"), win32.ISDSCAuthenticationFailure)
	refused(t, "another kind", login(iqn, 7, "u", "123456789012"), win32.ISDSCInvalidLogonAuthType)
	refused(t, "a short mutual secret", calls.ISCSI.SetSharedSecret(ctx, "x"), win32.ISDSCInvalidCHAPSecret)
	must(t, calls.ISCSI.SetSharedSecret(ctx, "abcdefghijkl"))
	must(t, login(iqn, api.MutualCHAP, "u", "123456789012"))
	refused(t, "a second login", login(iqn, api.OneWayCHAP, "u", "123456789012"), win32.ISDSCTargetAlreadyLoggedIn)
}

// The disks of a session arrive some time after the login, offline as all of
// their bus; the session cannot end while one is in use.
func TestISCSI_disksArriveLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, calls := iscsiRig(t, windows.Options{DeviceDelay: 3 * time.Second})
		ctx := t.Context()
		must(t, calls.Services.Start("MSiSCSI"))
		must(t, calls.ISCSI.AddPortal(ctx, portal))
		id, err := calls.ISCSI.Login(ctx, api.ISCSILogin{Portal: portal, IQN: iqn, Auth: api.OneWayCHAP, Username: "u", Secret: "123456789012"})
		must(t, err)
		if disks, err := calls.ISCSI.Devices(ctx, id); err != nil || disks != nil {
			t.Errorf("at once: %v, %v", disks, err)
		}
		time.Sleep(3 * time.Second)
		disks, err := calls.ISCSI.Devices(ctx, id)
		if err != nil || len(disks) != 1 {
			t.Fatalf("later: %v, %v", disks, err)
		}
		d, err := calls.Devices.OpenDisk(disks[0], win32.ReadWrite)
		must(t, err)
		refused(t, "ending a session in use", calls.ISCSI.Logout(ctx, id), win32.ISDSCDeviceBusyOnSession)
		must(t, d.Close())
		must(t, calls.ISCSI.Logout(ctx, id))
		refused(t, "ending it twice", calls.ISCSI.Logout(ctx, id), win32.ISDSCInvalidSessionID)
		_, err = calls.Devices.OpenDisk(disks[0], win32.Query)
		refused(t, "the disk", err, win32.ErrorFileNotFound)
	})
}

// GetDevicesForIScsiSessionW, LogoutIScsiTarget and a persistent login are busy for
// a while after the login.
func TestISCSI_aNewSessionIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, calls := iscsiRig(t, windows.Options{SessionBusy: 2 * time.Second})
		ctx := t.Context()
		must(t, calls.Services.Start("MSiSCSI"))
		must(t, calls.ISCSI.AddPortal(ctx, portal))
		login := api.ISCSILogin{Portal: portal, IQN: iqn, Auth: api.OneWayCHAP, Username: "u", Secret: "123456789012"}
		id, err := calls.ISCSI.Login(ctx, login)
		must(t, err)
		for _, busy := range []win32.Errno{win32.ISDSCSessionBusy, win32.ISDSCDeviceBusyOnSession} {
			_, err := calls.ISCSI.Devices(ctx, id)
			refused(t, "its devices", err, busy)
			refused(t, "keeping it", calls.ISCSI.Persist(ctx, login), busy)
			refused(t, "ending it", calls.ISCSI.Logout(ctx, id), busy)
			time.Sleep(time.Second)
		}
		must(t, calls.ISCSI.Persist(ctx, login))
		must(t, calls.ISCSI.Logout(ctx, id))
	})
}

// Only persistent logins come back after a restart, with the service.
func TestISCSI_persistentLoginsComeBack(t *testing.T) {
	for _, persistent := range []bool{false, true} {
		m, calls := iscsiRig(t, windows.Options{})
		ctx := t.Context()
		must(t, calls.Services.Start("MSiSCSI"))
		must(t, calls.ISCSI.AddPortal(ctx, portal))
		login := api.ISCSILogin{Portal: portal, IQN: iqn, Auth: api.OneWayCHAP, Username: "u", Secret: "123456789012"}
		_, err := calls.ISCSI.Login(ctx, login)
		must(t, err)
		if persistent {
			must(t, calls.ISCSI.Persist(ctx, login))
		}
		m.Reboot()
		must(t, calls.Services.Start("MSiSCSI"))
		sessions, err := calls.ISCSI.Sessions(ctx)
		must(t, err)
		if (len(sessions) == 1) != persistent {
			t.Errorf("persistent %v: sessions %+v", persistent, sessions)
		}
		logins, err := calls.ISCSI.PersistentLogins(ctx)
		must(t, err)
		for _, login := range logins {
			must(t, calls.ISCSI.RemovePersistentLogin(ctx, login))
			refused(t, "forgetting it twice", calls.ISCSI.RemovePersistentLogin(ctx, login), win32.ISDSCTargetNotFound)
		}
		if portals, err := calls.ISCSI.Portals(ctx); err != nil || len(portals) != 1 || portals[0].Port != 3260 {
			t.Errorf("portals %+v, %v", portals, err)
		}
		must(t, calls.ISCSI.RemovePortal(ctx, portal))
		refused(t, "removing it twice", calls.ISCSI.RemovePortal(ctx, portal), win32.ISDSCPortalNotFound)
	}
}

// Services start and stop asynchronously. Running dependents prevent a stop, and the
// services that a service needs are started with it.
func TestServices_areThoseOfTheControlManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, calls := machine(t, windows.Options{})
		must(t, m.AddService(windows.ServiceSpec{Name: "base", StartDelay: time.Second, StopDelay: time.Second}))
		must(t, m.AddService(windows.ServiceSpec{Name: "top", DependsOn: []string{"BASE"}, StartDelay: time.Second}))
		must(t, m.AddService(windows.ServiceSpec{Name: "off", StartType: 4}))
		must(t, m.AddService(windows.ServiceSpec{Name: "sick", StartError: win32.ErrorServiceLogonFailed}))
		must(t, m.AddService(windows.ServiceSpec{Name: "orphan", DependsOn: []string{"missing"}}))
		state := func(name string) uint32 {
			s, err := calls.Services.Query(name)
			must(t, err)
			return s.Status
		}
		refused(t, "an unknown one", calls.Services.Start("x"), win32.ErrorServiceDoesNotExist)
		refused(t, "a disabled one", calls.Services.Start("off"), win32.ErrorServiceDisabled)
		refused(t, "a sick one", calls.Services.Start("sick"), win32.ErrorServiceLogonFailed)
		refused(t, "one whose need is missing", calls.Services.Start("orphan"), win32.ErrorServiceDependencyFail)
		refused(t, "stopping a stopped one", calls.Services.Stop("top"), win32.ErrorServiceNotActive)
		must(t, calls.Services.Start("top"))
		refused(t, "starting it twice", calls.Services.Start("top"), win32.ErrorServiceAlreadyRunning)
		refused(t, "stopping it while it starts", calls.Services.Stop("top"), win32.ErrorServiceCannotAcceptCtrl)
		time.Sleep(time.Second)
		if state("base") != 4 || state("top") != 2 {
			t.Errorf("after a second: base %d, top %d", state("base"), state("top"))
		}
		time.Sleep(time.Second)
		if state("top") != 4 {
			t.Errorf("after two: top %d", state("top"))
		}
		refused(t, "stopping what another needs", calls.Services.Stop("base"), win32.ErrorDependentServicesRunning)
		if names, err := calls.Services.Dependents("base"); err != nil || len(names) != 1 || names[0] != "top" {
			t.Errorf("dependents %q, %v", names, err)
		}
		must(t, calls.Services.Stop("top"))
		must(t, calls.Services.Stop("base"))
		if state("base") != 3 {
			t.Errorf("base %d", state("base"))
		}
		time.Sleep(time.Second)
		if state("base") != 1 {
			t.Errorf("base %d", state("base"))
		}
	})
}

func TestSMBIOS_returnsTheSerialNumber(t *testing.T) {
	for _, serial := range []string{"", "ec2-1234"} {
		_, calls := machine(t, windows.Options{BIOSSerial: serial})
		table, err := calls.Firmware.SMBIOS()
		must(t, err)
		if got, err := win32.SystemSerial(table); err != nil || got != serial {
			t.Errorf("serial %q, %v", got, err)
		}
	}
}
