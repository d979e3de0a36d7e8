package proxytest_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-csi/holdfast/internal/csi/statuscode"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups/groupstest"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/host"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/proxytest"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/internal/fuzztest"
	"github.com/holdfast-csi/holdfast/proto/csiproxy"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

// machine is a simulated Windows with a blank disk, one with data, and a directory of a
// pod, and csi-proxy's host on it.
type machine struct {
	*windows.Machine
	*fuzztest.Services
	host *host.Host
}

func newMachine(t testing.TB) *machine {
	t.Helper()
	m := &machine{Machine: windows.New(windows.Options{SANPolicy: windows.OfflineShared}), Services: &fuzztest.Services{}}
	m.MustAddDisk(windows.DiskSpec{Serial: "vol0", Size: 1 << 30, Bus: win32.BusSAS})
	m.MustAddDisk(windows.DiskSpec{Serial: "vol1", Size: 1 << 30, Style: "data", FileSystem: "NTFS"})
	for _, path := range []string{proxytest.Kubelet + `\plugins\x`, proxytest.Kubelet + `\pods\u`, `C:\secret`} {
		if err := m.MkdirAll(path); err != nil {
			t.Fatal(err)
		}
	}
	rules, err := paths.New(proxytest.Kubelet)
	if err != nil {
		t.Fatal(err)
	}
	// No directory for state: the fuzzed calls must not reach the disks of this machine.
	if m.host, err = host.New(host.Options{Machine: m.Calls(), Rules: rules, RequirePrivacy: true, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	for _, definition := range append(csiproxy.Versions(), groups.Versions()...) {
		definition.Register(m.Services, m.host.API())
	}
	return m
}

// FuzzProxy calls every method of every version of both APIs with any bytes, in any
// order, on a simulated Windows. Each error is a known one with a text, each answer can be
// sent, the machine stays sound, no disk with data loses it, and nothing outside of the
// kubelet's directory changes.
func FuzzProxy(f *testing.F) {
	volume := `\\?\Volume{12345678-1234-1234-1234-123456789abc}\`
	path := proxytest.Kubelet + `\plugins\x\a`
	for i := range newMachine(f).Methods {
		var script []byte
		for _, request := range [][]byte{
			nil, groupstest.Text(1, "1"), groupstest.Text(1, path), groupstest.Message(groupstest.Text(1, path), groupstest.Number(2, 1)),
			groupstest.Message(groupstest.Text(1, volume), groupstest.Text(2, path)), groupstest.Message(groupstest.Number(1, 0)),
			groupstest.Message(groupstest.Number(1, 1<<32-1), groupstest.Number(2, -1)),
			groupstest.Message(groupstest.Text(1, path), groupstest.Text(2, `C:\secret`), groupstest.Text(3, `\\srv\share`), groupstest.Text(4, "s3cr3t")),
		} {
			script = fuzztest.Append(script, i, request)
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := newMachine(t)
		defer m.host.Close()
		fuzztest.Cost{CPU: time.Minute, Bytes: 64 << 20}.Within(t, len(data), func() {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			for _, call := range fuzztest.Script(data, len(m.Methods)) {
				m.call(ctx, t, m.Methods[call.Method], call.Request)
			}
		})
		if err := m.Check(); err != nil {
			t.Error(err)
		}
		if losses := m.Losses(); losses != nil {
			t.Errorf("lost: %q", losses)
		}
		if names, err := m.List(`C:\secret`); err != nil || len(names) > 0 {
			t.Errorf("outside of the kubelet's directory there are %q, %v", names, err)
		}
	})
}

func (m *machine) call(ctx context.Context, t *testing.T, method fuzztest.Method, request []byte) {
	t.Helper()
	response, read, err := method.Call(ctx, request)
	switch {
	case !read:
	case err != nil:
		if strings.TrimSpace(err.Error()) == "" || ctx.Err() == nil && statuscode.Of(err) == statuscode.Of(errors.New("")) {
			t.Errorf("%s: an error that wraps no known one: %v", method.Name, err)
		}
	default:
		if _, err := proto.Marshal(response); err != nil {
			t.Errorf("%s: the answer cannot be sent: %v", method.Name, err)
		}
	}
}
