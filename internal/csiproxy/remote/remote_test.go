package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/groups/groupstest"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/proxytest"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/remote"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/server"

	"github.com/holdfast-csi/holdfast/proto/csiproxy"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/client"
)

// serve is a machine with a csi-proxy.exe, and the way to its pipes.
func serve(t *testing.T, host api.Host, versions []api.Definition) client.Options {
	t.Helper()
	pipes := proxytest.NewPipes()
	s, err := server.New(server.Options{
		Versions: versions, Host: host, Transport: pipes.As(server.Process{ID: 1}), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	<-s.Ready()
	return client.Options{Dialer: pipes.Dial}
}

func connect(t *testing.T, host api.Host) *remote.Proxy {
	t.Helper()
	proxy, err := remote.Open(serve(t, host, csiproxy.Versions()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	return proxy
}

// operation is one of package api's, and all that it answers.
type operation struct {
	name string
	run  func(context.Context, api.Host) (any, error)
}

func op[T any](name string, run func(context.Context, api.Host) (T, error)) operation {
	return operation{name, func(ctx context.Context, host api.Host) (any, error) { return run(ctx, host) }}
}

func act(name string, run func(context.Context, api.Host) error) operation {
	return operation{name, func(ctx context.Context, host api.Host) (any, error) { return nil, run(ctx, host) }}
}

const volumeID = groupstest.VolumeID

// operations are all of package api but System's.
func operations() []operation {
	portal := api.Portal{Address: "10.0.0.1", Port: 3261}
	disk7 := api.Identity{Page83: "0123", SerialNumber: "seven"}
	return []operation{
		op("PathExists", func(ctx context.Context, h api.Host) (bool, error) { return h.Filesystem.PathExists(ctx, "p") }),
		act("Mkdir", func(ctx context.Context, h api.Host) error { return h.Filesystem.Mkdir(ctx, "p") }),
		act("Rmdir", func(ctx context.Context, h api.Host) error { return h.Filesystem.Rmdir(ctx, "p", false) }),
		act("Rmdir force", func(ctx context.Context, h api.Host) error { return h.Filesystem.Rmdir(ctx, "p", true) }),
		act("RmdirContents", func(ctx context.Context, h api.Host) error { return h.Filesystem.RmdirContents(ctx, "p") }),
		act("Link", func(ctx context.Context, h api.Host) error { return h.Filesystem.Link(ctx, "p", "q") }),
		op("IsLink", func(ctx context.Context, h api.Host) (bool, error) { return h.Filesystem.IsLink(ctx, "p") }),
		op("List", func(ctx context.Context, h api.Host) ([]api.Disk, error) { return h.Disks.List(ctx) }),
		act("Rescan", func(ctx context.Context, h api.Host) error { return h.Disks.Rescan(ctx) }),
		op("Partition", func(ctx context.Context, h api.Host) (string, error) {
			return h.Disks.Partition(ctx, 7, api.Identity{})
		}),
		op("Partition one", func(ctx context.Context, h api.Host) (string, error) { return h.Disks.Partition(ctx, 7, disk7) }),
		act("SetOnline", func(ctx context.Context, h api.Host) error { return h.Disks.SetOnline(ctx, 7, disk7, true) }),
		act("SetOffline", func(ctx context.Context, h api.Host) error { return h.Disks.SetOnline(ctx, 7, api.Identity{}, false) }),
		op("OnDisk", func(ctx context.Context, h api.Host) ([]string, error) { return h.Volumes.OnDisk(ctx, 7, 2) }),
		op("FileSystem", func(ctx context.Context, h api.Host) (string, error) { return h.Volumes.FileSystem(ctx, volumeID) }),
		act("Mount", func(ctx context.Context, h api.Host) error { return h.Volumes.Mount(ctx, volumeID, "p") }),
		act("Unmount", func(ctx context.Context, h api.Host) error { return h.Volumes.Unmount(ctx, volumeID, "p") }),
		op("Resize", func(ctx context.Context, h api.Host) (int64, error) { return h.Volumes.Resize(ctx, volumeID, 1<<40) }),
		op("Stats", func(ctx context.Context, h api.Host) (api.VolumeStats, error) { return h.Volumes.Stats(ctx, volumeID) }),
		op("DiskOf", func(ctx context.Context, h api.Host) (uint32, error) { return h.Volumes.DiskOf(ctx, volumeID) }),
		op("At", func(ctx context.Context, h api.Host) (string, error) { return h.Volumes.At(ctx, "p") }),
		op("Closest", func(ctx context.Context, h api.Host) (string, error) { return h.Volumes.Closest(ctx, "p") }),
		act("Flush", func(ctx context.Context, h api.Host) error { return h.Volumes.Flush(ctx, volumeID) }),
		act("SMB mount", func(ctx context.Context, h api.Host) error {
			return h.SMB.Mount(ctx, api.SMBMount{Remote: "r", Local: "l", Username: "u", Password: "w"})
		}),
		act("SMB unmount", func(ctx context.Context, h api.Host) error { return h.SMB.Unmount(ctx, "r", "") }),
		act("AddPortal", func(ctx context.Context, h api.Host) error { return h.ISCSI.AddPortal(ctx, portal) }),
		op("Discover", func(ctx context.Context, h api.Host) ([]string, error) { return h.ISCSI.Discover(ctx, portal) }),
		act("RemovePortal", func(ctx context.Context, h api.Host) error { return h.ISCSI.RemovePortal(ctx, portal) }),
		op("Portals", func(ctx context.Context, h api.Host) ([]api.Portal, error) { return h.ISCSI.Portals(ctx) }),
		act("Connect", func(ctx context.Context, h api.Host) error {
			return h.ISCSI.Connect(ctx, api.ISCSILogin{Portal: portal, IQN: "iqn.x", Auth: api.MutualCHAP, Username: "u", Secret: "w"})
		}),
		act("Disconnect", func(ctx context.Context, h api.Host) error { return h.ISCSI.Disconnect(ctx, portal, "iqn.x") }),
		op("Disks", func(ctx context.Context, h api.Host) ([]uint32, error) { return h.ISCSI.Disks(ctx, portal, "iqn.x") }),
		act("SetMutualSecret", func(ctx context.Context, h api.Host) error { return h.ISCSI.SetMutualSecret(ctx, "123456789012") }),
	}
}

// A host behind a pipe asks and answers as the machine's own.
func TestHost_asksAndAnswersAsTheMachineItself(t *testing.T) {
	machine := groupstest.Answering()
	near, far := machine.Host(), connect(t, machine.Host()).Host()
	for _, o := range operations() {
		want, err := o.run(t.Context(), near)
		if err != nil {
			t.Fatal(err)
		}
		asked := machine.Calls()
		got, err := o.run(t.Context(), far)
		if err != nil {
			t.Errorf("%s: %v", o.name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s answers (-near +far):\n%s", o.name, diff)
		}
		if diff := cmp.Diff(asked, machine.Calls()); diff != "" {
			t.Errorf("%s asks (-near +far):\n%s", o.name, diff)
		}
	}
	// These are one call of the API, and more than one of the machine.
	size, err := far.Disks.Size(t.Context(), 7)
	if err != nil || size != 64<<30 {
		t.Errorf("Size: %d, %v", size, err)
	}
	if online, err := far.Disks.Online(t.Context(), 7); err != nil || !online {
		t.Errorf("Online: %t, %v", online, err)
	}
}

func TestHost_formatsOnlyWhatIsRaw(t *testing.T) {
	machine := groupstest.Answering()
	far := connect(t, machine.Host()).Host()
	if err := far.Volumes.Format(t.Context(), volumeID, "NTFS"); !errors.Is(err, backend.ErrPrecondition) {
		t.Errorf("a formatted volume: %v", err)
	}
	machine.FileSystem = ""
	if err := far.Volumes.Format(t.Context(), volumeID, "NTFS"); err != nil {
		t.Errorf("a raw volume: %v", err)
	}
	if diff := cmp.Diff([]string{
		"FileSystem " + volumeID, "FileSystem " + volumeID, "Format " + volumeID + ` "NTFS"`,
	}, machine.Calls()); diff != "" {
		t.Error(diff)
	}
}

// Each kind of error comes through the pipe as itself, with its text.
func TestHost_errorsAreThoseOfTheMachine(t *testing.T) {
	machine := groupstest.Answering()
	far := connect(t, machine.Host()).Host()
	sentinels := []error{
		backend.ErrInvalid, backend.ErrNotFound, backend.ErrExists, backend.ErrBusy, backend.ErrInUse, backend.ErrPrecondition,
		backend.ErrNoSpace, backend.ErrOutOfRange, backend.ErrUnsupported, backend.ErrUnavailable, backend.ErrDenied,
		backend.ErrCredentials, backend.ErrDataLoss, context.Canceled, context.DeadlineExceeded,
	}
	for i, sentinel := range sentinels {
		machine.Err = fmt.Errorf(`taking disk 7 offline: %w: ERROR_ACCESS_DENIED (5)`, sentinel)
		err := far.Disks.Rescan(t.Context())
		if err == nil || err.Error() != machine.Err.Error() {
			t.Errorf("text %q, want %q", err, machine.Err)
		}
		for j, other := range sentinels {
			if errors.Is(err, other) != (i == j) {
				t.Errorf("%v is %v: %t", err, other, errors.Is(err, other))
			}
		}
	}
	machine.Err = errors.New("a fault")
	err := far.Disks.Rescan(t.Context())
	for _, sentinel := range sentinels {
		if errors.Is(err, sentinel) {
			t.Errorf("%v is %v", err, sentinel)
		}
	}
}

// The errors for a missing proxy are sentinels as well.
func TestProxy_checkSaysWhyThereIsNone(t *testing.T) {
	all := csiproxy.Versions()
	for name, c := range map[string]struct {
		options client.Options
		want    error
		says    string
	}{
		"none": {serve(t, api.Host{}, []api.Definition{
			{Group: "x", Version: "v1", Register: all[0].Register},
		}), backend.ErrUnavailable, "start the csi-proxy service"},
		"too old": {serve(t, groupstest.Answering().Host(), all[1:]), backend.ErrUnsupported, "found v1beta1, v1alpha1"},
		"denied": {client.Options{Dialer: func(context.Context, string) (net.Conn, error) { return nil, fs.ErrPermission }},
			backend.ErrDenied, `\\.\pipe\csi-proxy-v1`},
	} {
		t.Run(name, func(t *testing.T) {
			proxy, err := remote.Open(c.options)
			if err != nil {
				t.Fatal(err)
			}
			if err := proxy.Check(t.Context()); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Check: %v", err)
			}
			if _, err := proxy.Host().Disks.List(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("List: %v", err)
			}
			_ = proxy.Close()
			if err := proxy.Check(t.Context()); !errors.Is(err, backend.ErrUnavailable) {
				t.Errorf("closed: %v", err)
			}
		})
	}
}

func TestHost_callerWhoGoesIsToldSo(t *testing.T) {
	machine := groupstest.Answering()
	far := connect(t, machine.Host()).Host()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := far.Disks.Rescan(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestHost_hasNoSystem(t *testing.T) {
	system := remote.Host(nil).System
	if _, err := system.BIOSSerialNumber(t.Context()); !errors.Is(err, backend.ErrUnsupported) {
		t.Error(err)
	}
	if _, err := system.Service(t.Context(), "x"); !errors.Is(err, backend.ErrUnsupported) {
		t.Error(err)
	}
	for _, err := range []error{system.StartService(t.Context(), "x"), system.StopService(t.Context(), "x", true)} {
		if !errors.Is(err, backend.ErrUnsupported) {
			t.Error(err)
		}
	}
}

// Nothing of a secret is in an error, wherever the call fails.
func TestHost_errorsHoldNoSecret(t *testing.T) {
	machine := groupstest.Answering()
	far := connect(t, machine.Host()).Host()
	machine.Err = fmt.Errorf("%w: the password hidden-word is wrong", backend.ErrCredentials)
	secret := api.Secret("hidden-word")
	for _, err := range []error{
		far.SMB.Mount(t.Context(), api.SMBMount{Remote: "r", Local: "l", Password: secret}),
		far.ISCSI.Connect(t.Context(), api.ISCSILogin{Secret: secret}),
		far.ISCSI.SetMutualSecret(t.Context(), secret),
	} {
		if !errors.Is(err, backend.ErrCredentials) || strings.Contains(err.Error(), "hidden") {
			t.Error(err)
		}
	}
}
