package host_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

// launchWith runs the host with a listening socket as systemd passes one
// (sd_listen_fds(3)).
func (m *machine) launchWith(socket *os.File, name string) {
	m.t.Helper()
	m.host = exec.Command("sh", "-c", `export LISTEN_PID=$$; exec "$0" "$@"`, binary, "host", "--root", m.root, "--log-format=json")
	m.host.Env = append(os.Environ(), "LISTEN_FDS=1", "LISTEN_FDNAMES="+name)
	m.host.ExtraFiles = []*os.File{socket}
	m.host.Stdout, m.host.Stderr = m.log, m.log
	if err := m.host.Start(); err != nil {
		m.t.Fatal(err)
	}
}

// listenAsSystemd opens the socket of the volume plugin, and an engine of it.
func (m *machine) listenAsSystemd() (*os.File, *engine) {
	m.t.Helper()
	e := m.servePlugin()
	m.arguments = nil
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: m.plugin(), Net: "unix"})
	if err != nil {
		m.t.Fatal(err)
	}
	file, err := listener.File()
	if err != nil {
		m.t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if err := listener.Close(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = file.Close() })
	return file, e
}

// Calls of an engine while no host runs wait for the next host: an Unmount that fails
// would leave the volume mounted for ever.
func TestVolumePlugin_aSocketOfSystemdKeepsCallsForTheNextHost(t *testing.T) {
	m := newMachine(t)
	socket, e := m.listenAsSystemd()
	m.launchWith(socket, "volume-plugin")
	m.until("the host answers", limitOfTest, func() bool { _, err := m.client.Version(t.Context()); return err == nil })
	m.apply(strings.Replace(holdClaim, "{name: fast}", `{name: fast, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}`, 1))
	if info, err := os.Stat(m.plugin()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v; want that root alone may connect", info.Mode(), err)
	}
	e.does("Create", `{"Name":"web","Opts":{"size":"16Mi"}}`)
	e.does("Mount", `{"Name":"web","ID":"one"}`)
	m.stop()
	if _, err := os.Lstat(m.plugin()); err != nil {
		t.Errorf("the host that ended removed the socket: %v", err)
	}
	unmounted := make(chan said, 1)
	go func() {
		answer, _, err := e.try("/VolumeDriver.Unmount", `{"Name":"web","ID":"one"}`)
		if err != nil {
			answer.Err = err.Error()
		}
		unmounted <- answer
	}()
	m.launchWith(socket, "volume-plugin")
	ctx, cancel := context.WithTimeout(t.Context(), limitOfTest)
	defer cancel()
	select {
	case answer := <-unmounted:
		if answer.Err != "" {
			t.Errorf("the Unmount that waited for the host: %s", answer.Err)
		}
	case <-ctx.Done():
		t.Fatalf("the Unmount was not answered\n%s", m.tail())
	}
	m.until("nothing is mounted", limitOfTest, func() bool { return len(m.mounts()) == 0 })
	e.does("Remove", `{"Name":"web"}`)
}

// Another socket than the plugin's would be served to clients that nothing checks.
func TestVolumePlugin_refusesOtherSocketsOfSystemd(t *testing.T) {
	m := newMachine(t)
	socket, _ := m.listenAsSystemd()
	m.launchWith(socket, "host")
	if err := m.host.Wait(); err == nil {
		t.Error("the host ended without an error")
	}
	m.host = nil
	if !strings.Contains(m.tail(), `set FileDescriptorName=volume-plugin in its unit`) {
		t.Errorf("the host's log:\n%s", m.tail())
	}
	if _, err := m.client.List(t.Context(), m.kind("pods"), api.ListOptions{}); err == nil {
		t.Error("the host served")
	}
}
