package unixsocket

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func listen(t *testing.T, path string) *Listener {
	t.Helper()
	listener, err := Listen(context.Background(), path)
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// leaveStale makes a socket file as a killed process leaves it.
func leaveStale(t *testing.T, path string) {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestPath_endpoints(t *testing.T) {
	long := "/" + strings.Repeat("d", 102) + ".sock"
	cases := []struct{ endpoint, path, failure string }{
		{"unix:///csi/csi.sock", "/csi/csi.sock", ""},
		{"unix:/csi/csi.sock", "/csi/csi.sock", ""},
		{"/csi//csi.sock", "/csi/csi.sock", ""},
		{"tcp://127.0.0.1:9000", "", "unix sockets only"},
		{"unix://csi.sock", "", "must be absolute"},
		{"unix:///csi/csi", "", "must end in .sock"},
		{"", "", "must be absolute"},
		{"unix://" + long, "", "a unix socket has at most 107"},
	}
	for _, c := range cases {
		path, err := Path(c.endpoint)
		switch {
		case c.failure == "" && (err != nil || path != c.path):
			t.Errorf("Path(%q) is %q, %v; want %q", c.endpoint, path, err, c.path)
		case c.failure != "" && (err == nil || !strings.Contains(err.Error(), c.failure)):
			t.Errorf("Path(%q) fails with %v; want %q", c.endpoint, err, c.failure)
		}
	}
}

// The spellings of an endpoint in manifests for Windows.
func TestPath_endpointsOfWindows(t *testing.T) {
	for endpoint, want := range map[string]string{
		`unix:/csi/csi.sock`:       `C:\csi\csi.sock`,
		`unix:///csi/csi.sock`:     `C:\csi\csi.sock`,
		`unix://C:\csi\csi.sock`:   `C:\csi\csi.sock`,
		`unix://C:\\csi\\csi.sock`: `C:\csi\csi.sock`, // doubled where YAML did not need it
		`unix:///C:/csi/csi.sock`:  `C:\csi\csi.sock`,
		`C:\csi\csi.sock`:          `C:\csi\csi.sock`,
		`D:/csi/csi.sock`:          `D:\csi\csi.sock`,
		`unix://csi.sock`:          "",
		`unix:///csi/csi`:          "",
		`tcp://127.0.0.1:9000`:     "",
		`unix://\\server\x.sock`:   "",
		`unix:///csi/../x.sock`:    "",
		``:                         "",
		`unix://C:\` + strings.Repeat("d", 102) + `.sock`: "",
	} {
		got, err := pathOn("windows", endpoint)
		if (err == nil) != (want != "") || got != want {
			t.Errorf("%s is %q, %v; want %q", endpoint, got, err, want)
		}
	}
}

func TestListen_makesTheDirectoryAndKeepsOthersOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "x.sock")
	listen(t, path)
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("socket mode is %v, want 0600", info.Mode().Perm())
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("next to the socket there is %v (%v), want nothing", entries, err)
	}
}

func TestListen_replacesTheSocketOfADeadProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	leaveStale(t, path)
	listener := listen(t, path)
	if !listener.Owns() {
		t.Error("the listener does not own its new file")
	}
}

func TestListen_refusesTheSocketOfALivingProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	first := listen(t, path)
	if _, err := Listen(context.Background(), path); !errors.Is(err, ErrServed) {
		t.Fatalf("second listen fails with %v, want ErrServed", err)
	}
	if !first.Owns() {
		t.Error("the refused second listener took the first one's file")
	}
}

func TestListen_rejectsAFileThatIsNotASocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(context.Background(), path); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Fatalf("listen fails with %v, want a refusal of the file", err)
	}
	if content, _ := os.ReadFile(path); string(content) != "precious" {
		t.Error("the file was touched")
	}
}

func TestClose_removesOnlyTheOwnFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	own := listen(t, path)
	if err := own.Close(); err != nil || exists(path) {
		t.Fatalf("close: %v; the file is still there: %v", err, exists(path))
	}
	old := listen(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	successor := listen(t, path)
	if old.Owns() {
		t.Error("a listener owns the file of its successor")
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	if !exists(path) || !successor.Owns() {
		t.Error("closing the old listener removed its successor's file")
	}
}

// A socket counts as stale only if it refuses several connections: on Windows a new
// socket refuses the first (docs/reference/windows.md, "The checklist of the KEP").
func TestIsServed_dialsAgain(t *testing.T) {
	refused := func() error {
		_, err := net.Dial("unix", leftBehind(t))
		return err
	}()
	if !isRefused(refused) {
		t.Fatalf("%v is not a refusal", refused)
	}
	for dialsUntilAnswer, want := range map[int]bool{1: true, 2: true, 3: false} {
		dials := 0
		served, err := isServed(t.Context(), 2, func(context.Context) error {
			if dials++; dials >= dialsUntilAnswer {
				return nil
			}
			return refused
		})
		if served != want || err != nil {
			t.Errorf("it answers at dial %d: %t, %v", dialsUntilAnswer, served, err)
		}
	}
	if _, err := isServed(t.Context(), 2, func(context.Context) error { return os.ErrPermission }); !errors.Is(err, os.ErrPermission) {
		t.Error(err)
	}
}

// leftBehind is the socket of a dead process.
func leftBehind(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.sock")
	leaveStale(t, path)
	return path
}
