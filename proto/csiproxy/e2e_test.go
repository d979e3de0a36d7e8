package csiproxy_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/proxytest"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/client"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

const (
	kubelet = proxytest.Kubelet
	staging = kubelet + `\plugins\x\globalmount`
	publish = kubelet + `\pods\u\mount`
	gib     = int64(1) << 30
)

// world is a node with csi-proxy, and a plugin.
type world struct {
	*testing.T
	*proxytest.Node
	*client.Client
}

func newWorld(t *testing.T, versions ...string) *world {
	t.Helper()
	node := proxytest.New(t, versions...)
	return &world{T: t, Node: node, Client: node.Client()}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// disk returns the number of the disk with the serial number.
func (w *world) disk(serial string) uint32 {
	w.Helper()
	ids, err := w.GetDiskIDs(w.Context(), &v1.GetDiskIDsRequest{})
	w.must(err)
	for number, id := range ids.GetDiskIds() {
		if id.GetSerialNumber() == serial {
			return number
		}
	}
	w.Fatalf("no disk %s in %v", serial, ids)
	return 0
}

// stage is NodeStage with the KEP's calls alone.
func (w *world) stage(disk uint32) (volumeID string) {
	w.Helper()
	partition, err := w.PartitionDisk(w.Context(), &v1.PartitionDiskRequest{DiskNumber: disk})
	w.must(err)
	_, err = w.FormatVolume(w.Context(), &v1.FormatVolumeRequest{VolumeId: partition.GetVolumeId(), StagingPath: staging})
	w.must(err)
	return partition.GetVolumeId()
}

// The life of a directly attached disk in each version, as far as the
// version goes.
func TestE2E_diskInEachVersion(t *testing.T) {
	for _, name := range []string{"v1", "v1beta1", "v1alpha1"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, name)
			number := w.MustAddDisk(windows.DiskSpec{
				Serial: "vol1", Size: gib, Bus: win32.BusSAS, Location: &win32.SCSIAddress{Port: 1, Path: 2, Target: 3, LUN: 4},
			})
			if got := w.disk("vol1"); got != number {
				t.Fatalf("disk %d, want %d", got, number)
			}
			locations, err := w.GetDiskLocations(t.Context(), &v1.GetDiskLocationsRequest{})
			w.must(err)
			if at := locations.GetDiskLocations()[number]; at.GetAdapter() != 1 || at.GetBus() != 2 || at.GetTarget() != 3 || at.GetLun() != 4 {
				t.Errorf("location %v", at)
			}
			volumeID := w.stage(number)
			if again := w.stage(number); again != volumeID {
				t.Errorf("staged again it is %s, was %s", again, volumeID)
			}
			_, err = w.LinkVolume(t.Context(), &v1.LinkVolumeRequest{StagingPath: staging, TargetPath: publish})
			w.must(err)
			w.must(w.WriteFile(publish+`\data`, 5))
			w.must(w.GrowDisk(number, 2*gib))
			_, err = w.Rescan(t.Context(), &v1.RescanRequest{})
			w.must(err)
			resized, err := w.ResizeVolume(t.Context(), &v1.ResizeVolumeRequest{VolumeId: volumeID})
			w.must(err)
			if size := resized.GetSizeBytes(); name != "v1alpha1" && (size < 2*gib-64<<20 || size > 2*gib) {
				t.Errorf("resized to %d", size)
			}
			_, err = w.ResizeVolume(t.Context(), &v1.ResizeVolumeRequest{VolumeId: volumeID, SizeBytes: 3 * gib})
			if status.Code(err) != codes.OutOfRange {
				t.Errorf("beyond the disk: %v", err)
			}
			_, err = w.Rmdir(t.Context(), &v1.RmdirRequest{Path: publish})
			w.must(err)
			if !w.Exists(staging + `\data`) {
				t.Error("the data went with the link")
			}
			w.unstage(name, volumeID)
		})
	}
}

func (w *world) unstage(version, volumeID string) {
	w.Helper()
	_, err := w.UnmountVolume(w.Context(), &v1.UnmountVolumeRequest{VolumeId: volumeID, StagingPath: staging})
	if version == "v1alpha1" {
		if !errors.Is(err, client.ErrVersion) {
			w.Errorf("UnmountVolume in %s: %v", version, err)
		}
		return
	}
	w.must(err)
	_, err = w.Rmdir(w.Context(), &v1.RmdirRequest{Path: staging})
	w.must(err)
}

// Rejected requests, before which nothing is made.
func TestE2E_formatVolumeRefusesBeforeItFormats(t *testing.T) {
	w := newWorld(t)
	blank := w.MustAddDisk(windows.DiskSpec{Serial: "blank", Size: gib})
	partition, err := w.PartitionDisk(t.Context(), &v1.PartitionDiskRequest{DiskNumber: blank})
	w.must(err)
	w.must(w.MkdirAll(kubelet + `\plugins\full\x`))
	for path, want := range map[string]codes.Code{
		`plugins\x`:                     codes.InvalidArgument,
		`C:\windows\x`:                  codes.InvalidArgument,
		kubelet:                         codes.InvalidArgument,
		kubelet + `\plugins\x\..\..\..`: codes.InvalidArgument,
		kubelet + `\plugins\full`:       codes.FailedPrecondition,
	} {
		_, err := w.FormatVolume(t.Context(), &v1.FormatVolumeRequest{VolumeId: partition.GetVolumeId(), StagingPath: path})
		if status.Code(err) != want {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	fileSystem, err := w.GetVolumeFileSystem(t.Context(), &v1.GetVolumeFileSystemRequest{VolumeId: partition.GetVolumeId()})
	if err != nil || fileSystem.GetFileSystem() != "" {
		t.Errorf("it was formatted: %v, %v", fileSystem, err)
	}
	noisy := w.MustAddDisk(windows.DiskSpec{Serial: "noisy", Size: gib, Noise: true})
	if _, err := w.PartitionDisk(t.Context(), &v1.PartitionDiskRequest{DiskNumber: noisy}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a disk with data: %v", err)
	}
}

// The process dies at each of its calls that change the machine: the repetition,
// with a new process, finishes FormatVolume.
func TestE2E_formatVolumeAfterADeathAtAnyCall(t *testing.T) {
	for at := 1; ; at++ {
		w := newWorld(t)
		number := w.MustAddDisk(windows.DiskSpec{Serial: "vol1", Size: gib})
		partition, err := w.PartitionDisk(t.Context(), &v1.PartitionDiskRequest{DiskNumber: number})
		w.must(err)
		request := &v1.FormatVolumeRequest{VolumeId: partition.GetVolumeId(), FileSystem: "NTFS", StagingPath: staging}
		w.Inject(windows.Fault{Changing: true, At: at, Times: 1, Action: windows.DieAfter})
		_, err = w.FormatVolume(t.Context(), request)
		if err == nil {
			if at < 4 {
				t.Errorf("it took %d calls only", at-1)
			}
			return
		}
		w.Restart()
		if _, err := w.FormatVolume(t.Context(), request); err != nil {
			t.Errorf("after a death at call %d: %v", at, err)
		}
		found, err := w.GetVolumeAtPath(t.Context(), &v1.GetVolumeAtPathRequest{Path: staging})
		if err != nil || found.GetVolumeId() != partition.GetVolumeId() {
			t.Errorf("after a death at call %d: %v, %v", at, found, err)
		}
	}
}

// A LUN and a share, in each version, as far as it goes.
func TestE2E_remoteVolumesInEachVersion(t *testing.T) {
	const chapSecret = "secret-of-chap"
	for _, name := range []string{"v1", "v1beta1", "v1alpha1"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, name)
			portal := &v1.ISCSIPortal{Address: "10.0.0.1", Port: 3260}
			w.must(w.AddTarget(windows.ISCSITarget{
				Portal: api.Portal{Address: "10.0.0.1", Port: 3260}, IQN: iqn, User: "u", Secret: chapSecret,
				LUNs: []windows.DiskSpec{{Serial: "lun0", Size: gib}, {Serial: "lun1", Size: gib}},
			}))
			request := &v1.MountISCSILunRequest{
				Portal: portal, Iqn: iqn, Lun: 1, AuthType: v1.ISCSIAuthType_ISCSI_AUTH_TYPE_ONE_WAY_CHAP,
				ChapUsername: "u", ChapSecret: "another-secret",
			}
			if _, err := w.MountISCSILun(t.Context(), request); status.Code(err) != codes.Unauthenticated ||
				strings.Contains(err.Error(), "another") {
				t.Errorf("wrong secret: %v", err)
			}
			request.ChapSecret = chapSecret
			mounted, err := w.MountISCSILun(t.Context(), request)
			w.must(err)
			if number := w.disk("lun1"); mounted.GetDiskNumber() != number {
				t.Errorf("disk %d, want %d", mounted.GetDiskNumber(), number)
			}
			volumeID := w.stage(mounted.GetDiskNumber())
			w.unstage(name, volumeID)
			unmount := &v1.UnmountISCSILunRequest{Portal: portal, Iqn: iqn, Lun: 1}
			if name != "v1alpha1" {
				_, err := w.UnmountISCSILun(t.Context(), unmount)
				w.must(err)
				_, err = w.UnmountISCSILun(t.Context(), unmount)
				w.must(err)
			}
			w.share(name)
		})
	}
}

func (w *world) share(version string) {
	w.Helper()
	w.must(w.AddShare(windows.SMBShare{Server: "server", Share: "share", Users: map[string]string{"u": "word-of-u"}}))
	local := kubelet + `\plugins\x\share`
	request := &v1.MountSMBShareRequest{RemotePath: remote, StagingPath: local, Username: "u", Password: "wrong-word"}
	if _, err := w.MountSMBShare(w.Context(), request); status.Code(err) != codes.Unauthenticated ||
		strings.Contains(err.Error(), "wrong-word") {
		w.Errorf("wrong password: %v", err)
	}
	request.Password, request.StagingPath = "word-of-u", `C:\windows\share`
	if _, err := w.MountSMBShare(w.Context(), request); status.Code(err) != codes.InvalidArgument {
		w.Errorf("bad path: %v", err)
	}
	if user, mapped := w.MappedUser(remote); mapped {
		w.Errorf("the share is mapped for %s", user)
	}
	request.StagingPath = local
	for range 2 {
		_, err := w.MountSMBShare(w.Context(), request)
		w.must(err)
	}
	if version == "v1alpha1" {
		return
	}
	for range 2 {
		_, err := w.UnmountSMBShare(w.Context(), &v1.UnmountSMBShareRequest{RemotePath: remote, StagingPath: local})
		w.must(err)
	}
	if _, mapped := w.MappedUser(remote); mapped || w.Exists(local) {
		w.Error("the share is mapped still")
	}
}
