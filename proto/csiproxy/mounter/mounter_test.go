package mounter_test

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/proxytest"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32/simulated"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/client"
	"github.com/holdfast-csi/holdfast/proto/csiproxy/mounter"
	v1 "github.com/holdfast-csi/holdfast/proto/csiproxy/v1"
)

const (
	staging = proxytest.Kubelet + `\plugins\x\globalmount`
	target  = proxytest.Kubelet + `\pods\u\mount`
	remote  = `\\server\share\sub`
	word    = "word-of-u"
)

type rig struct {
	*testing.T
	*proxytest.Node
	*mounter.Mounter
	proxy *client.Client
}

func newRig(t *testing.T) *rig {
	t.Helper()
	node := proxytest.New(t)
	proxy := node.Client()
	return &rig{T: t, Node: node, Mounter: mounter.New(proxy), proxy: proxy}
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// volume is one of a new disk, with a file system or without.
func (r *rig) volume(formatted bool) string {
	r.Helper()
	disk := r.MustAddDisk(simulated.DiskSpec{Serial: fmt.Sprintf("vol%t", formatted), Size: 1 << 30})
	made, err := r.proxy.PartitionDisk(r.Context(), &v1.PartitionDiskRequest{DiskNumber: disk})
	r.must(err)
	if formatted {
		_, err := r.proxy.FormatVolume(r.Context(), &v1.FormatVolumeRequest{VolumeId: made.GetVolumeId()})
		r.must(err)
	}
	return made.GetVolumeId()
}

func (r *rig) isMount(path string, want bool) {
	r.Helper()
	is, err := r.IsMountPoint(path)
	if err != nil || is != want {
		r.Errorf("%s is a mount point: %t, %v", path, is, err)
	}
	not, err := r.IsLikelyNotMountPoint(path)
	if err != nil || not == want {
		r.Errorf("%s is likely not a mount point: %t, %v", path, not, err)
	}
}

// W-5: a volume is mounted, linked to a pod, and goes, over csi-proxy.
func TestMount_volumeAndLink(t *testing.T) {
	r := newRig(t)
	id := r.volume(true)
	for range 2 {
		r.must(r.Mount(id, staging, "ntfs", nil))
	}
	r.isMount(staging, true)
	r.must(r.MkdirAll(target)) // as kubelet may have it
	for range 2 {
		r.must(r.Mount(staging, strings.ReplaceAll(target, `\`, "/")[2:], "", []string{"bind", "rw"})) // W-1: no drive, slashes
	}
	r.isMount(target, true)
	r.must(r.WriteFile(target+`\data`, 1))
	for _, path := range []string{staging, target} {
		if name, err := r.GetDeviceNameFromMount(r, path, ""); err != nil || name != id {
			t.Errorf("device at %s: %s, %v", path, name, err)
		}
	}
	for range 2 {
		r.must(r.Unmount(target))
	}
	if !r.Exists(staging + `\data`) {
		t.Error("the data went with the link")
	}
	r.must(r.Unmount(staging))
	for _, path := range []string{staging, target} {
		if exists, err := r.PathExists(path); err != nil || exists {
			t.Errorf("%s exists: %t, %v", path, exists, err)
		}
		if _, err := r.IsLikelyNotMountPoint(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	r.must(r.Mount(id, staging, "", nil))
	if !r.Exists(staging + `\data`) {
		t.Error("the data is gone")
	}
}

// W-5: nothing is formatted, and no mount is made of what is not as it was said.
func TestMount_refusesVolumesOfAnotherFileSystem(t *testing.T) {
	r := newRig(t)
	var failure mount.MountError
	if err := r.Mount(r.volume(false), staging, "NTFS", nil); !errors.As(err, &failure) || failure.Type != mount.UnknownMountError {
		t.Errorf("without a file system: %v", err)
	}
	if err := r.Mount(r.volume(true), staging, "ReFS", nil); !errors.As(err, &failure) || failure.Type != mount.FilesystemMismatch {
		t.Errorf("of another type: %v", err)
	}
	if r.Exists(staging) {
		t.Error("the directory was made")
	}
}

// W-5: shares, with credentials that no error shows.
func TestMount_share(t *testing.T) {
	r := newRig(t)
	r.must(r.AddShare(simulated.SMBShare{Server: "server", Share: "share", Users: map[string]string{"u": word}}))
	err := r.MountSensitive(remote, target, "cifs", []string{"username=u"}, []string{"password=wrong-" + word})
	if status.Code(errors.Unwrap(err)) != codes.Unauthenticated || strings.Contains(err.Error(), word) {
		t.Errorf("wrong password: %v", err)
	}
	for _, slashes := range []string{remote, "//server/share/sub"} {
		r.must(r.MountSensitive(slashes, target, "", []string{"username=u"}, []string{"password=" + word}))
	}
	r.must(r.Unmount(target))
	if user, mapped := r.MappedUser(`\\server\share`); mapped || r.Exists(target) {
		t.Errorf("mapped for %q, link there: %t", user, r.Exists(target))
	}
	r.must(r.MountSensitive(remote, target, "", []string{"username=u"}, []string{"password=" + word}))
	again := mounter.New(r.proxy) // the plugin was started anew
	r.must(again.UnmountShare(remote, target))
	if _, mapped := r.MappedUser(`\\server\share`); mapped || r.Exists(target) {
		t.Error("the share is there still")
	}
}

// What Windows cannot do is refused and not forgotten.
func TestMount_refusesWhatItCannotDo(t *testing.T) {
	r := newRig(t)
	r.must(r.MkdirAll(staging))
	for name, err := range map[string]error{
		"read-only":             r.Mount(staging, target, "", []string{"bind", "ro"}),
		"unknown option":        r.Mount(staging, target, "", []string{"noatime"}),
		"unknown with a value":  r.Mount(staging, target, "", []string{"vers=3.0"}),
		"secret of a link":      r.MountSensitive(staging, target, "", nil, []string{"password=" + word}),
		"unknown secret":        r.MountSensitive(staging, target, "", nil, []string{"key=" + word}),
		"unknown secret flag":   r.MountSensitive(staging, target, "", nil, []string{word}),
		"mount flags":           r.MountSensitiveWithoutSystemdWithMountFlags(staging, target, "", nil, nil, []string{"--x"}),
		"resolving of links":    second(r.EvalHostSymlinks(target)),
		"list of mounts":        second(r.List()),
		"read-only, no systemd": r.MountSensitiveWithoutSystemd(staging, target, "", []string{"ro"}, nil),
	} {
		if !errors.Is(err, mounter.ErrUnsupported) || strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r.Exists(target) {
		t.Error("something was made")
	}
	r.must(r.MountSensitiveWithoutSystemdWithMountFlags(staging, target, "", nil, nil, nil))
	r.isMount(target, true)
}

func second[T any](_ T, err error) error { return err }

// A directory in the way is removed when it is empty only, and no other link.
func TestMount_keepsWhatIsInItsWay(t *testing.T) {
	r := newRig(t)
	r.must(r.MkdirAll(staging))
	r.must(r.MkdirAll(staging + "2"))
	r.must(r.MkdirAll(target + `\full`))
	if err := r.Mount(staging, target, "", nil); err == nil || !r.Exists(target+`\full`) {
		t.Errorf("a directory that is not empty: %v", err)
	}
	if err := r.Unmount(target); err == nil || !r.Exists(target+`\full`) {
		t.Errorf("the unmount of a directory that is not empty: %v", err)
	}
	r.must(r.Mount(staging, target+"2", "", nil))
	if err := r.Mount(staging+"2", target+"2", "", nil); err == nil {
		t.Error("another link was replaced")
	}
	if err := r.Mount(staging+"3", target+"3", "", nil); err == nil || r.Exists(target+"3") { // D-20
		t.Errorf("a source that is missing: %v", err)
	}
}

func TestGetMountRefs_isThePathItself(t *testing.T) {
	r := newRig(t)
	r.must(r.MkdirAll(staging))
	if refs, err := r.GetMountRefs(staging); err != nil || !slices.Equal(refs, []string{staging}) {
		t.Errorf("%q, %v", refs, err)
	}
	if _, err := r.GetMountRefs(target); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// W-5: the rest of kubelet's interfaces has the answers of Windows.
func TestHostUtils_answersOfWindows(t *testing.T) {
	r := newRig(t)
	opened, openedErr := r.DeviceOpened("x")
	device, deviceErr := r.PathIsDevice("x")
	linux, linuxErr := r.GetSELinuxSupport("x")
	user, group, ownerErr := r.GetOwner("x")
	got := []any{opened, openedErr, device, deviceErr, linux, linuxErr, user, group, ownerErr, r.MakeRShared("x"), r.CanSafelySkipMountPointCheck()}
	want := []any{false, nil, false, nil, false, nil, int64(-1), int64(-1), nil, nil, false}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// An error of the proxy names what was to be done.
func TestMount_errorsNameBothEnds(t *testing.T) {
	r := newRig(t)
	err := r.Mount(staging, `C:\windows\x`, "", nil)
	if err == nil || !strings.Contains(err.Error(), staging) || !strings.Contains(err.Error(), `C:\windows\x`) {
		t.Error(err)
	}
	if err := r.Unmount(`C:\windows`); err == nil || !strings.Contains(err.Error(), `C:\windows`) {
		t.Error(err)
	}
}
