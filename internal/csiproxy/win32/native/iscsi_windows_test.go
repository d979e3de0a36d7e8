package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/windows"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/winetest"
)

// compiled makes a DLL of a C file with the compiler of the system below wine.
func compiled(t *testing.T, source string) string {
	t.Helper()
	const compiler = "/usr/bin/x86_64-w64-mingw32-gcc"
	if !win32.UnderWine() {
		t.Skip("a stand-in for a DLL is only made under wine")
	}
	if _, err := os.Stat(`Z:` + compiler); err != nil {
		t.Fatalf("no C compiler for a stand-in for a DLL: %v; run test/windows/wine/setup.sh --with-mingw", err)
	}
	dir := winetest.Dir(t)
	content, err := os.ReadFile(filepath.Join("testdata", source))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, source), content, 0o644))
	must(t, os.WriteFile(filepath.Join(dir, "make.sh"), []byte(fmt.Sprintf(
		"cd '%s' && %s -Wall -shared -O1 -o new.dll %s && mv new.dll made.dll\n", unixPath(t, dir), compiler, source)), 0o755))
	dll := filepath.Join(dir, "made.dll")
	unix(t, func() bool { _, err := os.Stat(dll); return err == nil }, "/bin/sh", unixPath(t, filepath.Join(dir, "make.sh")))
	return dll
}

const standInTarget = "iqn.2026-11.example:target"

// The stand-in checks the arguments against the documented prototypes; that the
// real library behaves so is seen nowhere here.
func TestISCSI_passesItsArgumentsAsDocumented(t *testing.T) {
	dll := windows.NewLazyDLL(compiled(t, "iscsidsc.c"))
	must(t, dll.Load())
	t.Cleanup(func() { must(t, windows.FreeLibrary(windows.Handle(dll.Handle()))) })
	i, ctx := iscsi{dll: dll, gate: make(gate, 2)}, context.Background()
	portal := api.Portal{Address: "10.0.0.1", Port: 3261}

	must(t, i.AddPortal(ctx, portal))
	portals, err := i.Portals(ctx)
	if diff := cmp.Diff([]api.Portal{portal}, portals); err != nil || diff != "" {
		t.Errorf("portals: %v\n%s", err, diff)
	}
	targets, err := i.Targets(ctx, portal, false)
	if err != nil || len(targets) != 0 {
		t.Errorf("targets before discovery: %q, %v", targets, err)
	}
	targets, err = i.Targets(ctx, portal, true)
	if diff := cmp.Diff([]string{standInTarget}, targets); err != nil || diff != "" {
		t.Errorf("targets: %v\n%s", err, diff)
	}

	session := logIn(t, i, portal)
	devices, err := i.Devices(ctx, session)
	if diff := cmp.Diff([]uint32{5, 7}, devices); err != nil || diff != "" {
		t.Errorf("disks: %v\n%s", err, diff)
	}
	_, err = i.Devices(ctx, win32.SessionID{AdapterUnique: 1})
	refused(t, "another session", err, win32.ISDSCInvalidSessionID)
	must(t, i.Logout(ctx, session))
	refused(t, "logout again", i.Logout(ctx, session), win32.ISDSCInvalidSessionID)

	must(t, i.SetSharedSecret(ctx, "secret-12345"))
	refused(t, "another secret", i.SetSharedSecret(ctx, "secret-54321"), win32.ErrorInvalidParameter)
	refused(t, "no secret", i.SetSharedSecret(ctx, ""), win32.ISDSCInvalidCHAPSecret)
	must(t, i.SetSharedSecret(ctx, "short")) // with a warning, ISDSC_SHORT_CHAP_SECRET
	must(t, i.RemovePortal(ctx, portal))
	refused(t, "remove again", i.RemovePortal(ctx, portal), win32.ErrorInvalidParameter)
}

// logIn goes through a login that is refused and one that is kept.
func logIn(t *testing.T, i iscsi, portal api.Portal) win32.SessionID {
	t.Helper()
	ctx := context.Background()
	login := api.ISCSILogin{Portal: portal, IQN: standInTarget, Auth: api.OneWayCHAP, Username: "user", Secret: "wrong-secret"}
	_, err := i.Login(ctx, login)
	refused(t, "login with a wrong secret", err, win32.ISDSCAuthenticationFailure)
	if err != nil && strings.Contains(err.Error(), "wrong-secret") {
		t.Errorf("the secret shows in %v", err)
	}
	if kept, err := i.PersistentLogins(ctx); err != nil || len(kept) != 0 {
		t.Errorf("a refused login is kept: %v, %v", kept, err)
	}

	login.Secret = "0123456789ab"
	id, err := i.Login(ctx, login)
	must(t, err)
	must(t, i.Persist(ctx, login))
	want := []win32.Session{{ID: id, IQN: standInTarget, Portals: []api.Portal{portal}}}
	sessions, err := i.Sessions(ctx)
	if diff := cmp.Diff(want, sessions); err != nil || diff != "" {
		t.Errorf("sessions: %v\n%s", err, diff)
	}
	kept := win32.PersistentLogin{IQN: standInTarget, Portal: portal}
	logins, err := i.PersistentLogins(ctx)
	if diff := cmp.Diff([]win32.PersistentLogin{kept}, logins); err != nil || diff != "" {
		t.Errorf("persistent logins: %v\n%s", err, diff)
	}
	must(t, i.RemovePersistentLogin(ctx, kept))
	_, err = i.Login(ctx, login)
	refused(t, "login next to a session", err, win32.ISDSCTargetAlreadyLoggedIn)
	must(t, i.Persist(ctx, login))
	if logins, err := i.PersistentLogins(ctx); err != nil || len(logins) != 1 {
		t.Errorf("it is kept as %v, %v", logins, err)
	}
	must(t, i.RemovePersistentLogin(ctx, kept))
	refused(t, "remove again", i.RemovePersistentLogin(ctx, kept), win32.ErrorNotFound)
	return id
}

func TestISCSI_isUnsupportedWithoutItsLibrary(t *testing.T) {
	i := iscsi{dll: windows.NewLazySystemDLL("holdfast-none.dll"), gate: make(gate, 1)}
	ctx, portal := context.Background(), api.Portal{Address: "10.0.0.1"}
	_, portals := i.Portals(ctx)
	_, targets := i.Targets(ctx, portal, true)
	_, reported := i.Targets(ctx, portal, false)
	_, login := i.Login(ctx, api.ISCSILogin{Portal: portal})
	_, sessions := i.Sessions(ctx)
	_, devices := i.Devices(ctx, win32.SessionID{})
	_, logins := i.PersistentLogins(ctx)
	for call, err := range map[string]error{
		"AddPortal": i.AddPortal(ctx, portal), "RemovePortal": i.RemovePortal(ctx, portal), "Portals": portals,
		"Targets": targets, "Targets as they are": reported, "Login": login,
		"Persist": i.Persist(ctx, api.ISCSILogin{Portal: portal}), "Logout": i.Logout(ctx, win32.SessionID{}),
		"Sessions": sessions, "Devices": devices, "PersistentLogins": logins,
		"RemovePersistentLogin": i.RemovePersistentLogin(ctx, win32.PersistentLogin{}), "SetSharedSecret": i.SetSharedSecret(ctx, "x"),
	} {
		if !errors.Is(err, backend.ErrUnsupported) || !errors.Is(err, win32.ErrorModNotFound) {
			t.Errorf("%s: %v", call, err)
		}
	}
}

func TestPortals_haveOneSpelling(t *testing.T) {
	for _, c := range [][2]api.Portal{
		{{Address: "10.0.0.1"}, {Address: "10.0.0.1", Port: 3260}},
		{{Address: "[FD00::1]", Port: 1}, {Address: "fd00:0::1", Port: 1}},
		{{Address: "Storage", Port: 1}, {Address: "storage", Port: 1}},
	} {
		if a, b := endpoint(c[0].Address, c[0].Port), endpoint(c[1].Address, c[1].Port); a != b {
			t.Errorf("%v and %v are %q and %q", c[0], c[1], a, b)
		}
	}
	if endpoint("10.0.0.1", 3260) == endpoint("10.0.0.1", 3261) {
		t.Error("two ports are one endpoint")
	}
}
