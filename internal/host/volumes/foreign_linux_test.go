package volumes

import (
	"os"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// mountsFUSE has the driver publish filesystems in user space.
func mountsFUSE(t *testing.T) func(*csidriver.Driver) {
	t.Helper()
	return func(d *csidriver.Driver) {
		d.Publish = func(r *csi.NodePublishVolumeRequest) error {
			if err := os.MkdirAll(r.GetTargetPath(), 0o755); err != nil || isMounted(r.GetTargetPath()) {
				return err
			}
			daemon, err := csidriver.MountFUSE(r.GetTargetPath())
			if err == nil {
				t.Cleanup(daemon.Kill)
			}
			return err
		}
	}
}

// A class that names no filesystem leaves the choice to the driver, and with it
// the driver's default fsGroupPolicy leaves the files' owners alone: a driver of
// filesystems in user space refuses to change them.
func TestFilesystemType_isLeftToTheDriver(t *testing.T) {
	w, a := newServing(t, mountsFUSE(t))
	w.ensured("a")
	w.mount(w.create(withGroup(pod("web", "a"), 4321)))
	created := one[*csi.CreateVolumeRequest](t, a).GetVolumeCapabilities()[0]
	staged, published := one[*csi.NodeStageVolumeRequest](t, a), one[*csi.NodePublishVolumeRequest](t, a)
	for call, capability := range map[string]*csi.VolumeCapability{
		"CreateVolume": created, "NodeStageVolume": staged.GetVolumeCapability(), "NodePublishVolume": published.GetVolumeCapability(),
	} {
		if got := capability.GetMount().GetFsType(); got != "" {
			t.Errorf("%s: the filesystem type is %q", call, got)
		}
	}
}

func TestFilesystemType_isTheClass(t *testing.T) {
	w, a := newServing(t)
	w.put(func(tx *store.Tx) error {
		named := class()
		named.Parameters = map[string]string{"csi.storage.k8s.io/fstype": "xfs"}
		return tx.Classes().Put(named.Name, named)
	})
	w.ensured("a")
	target := w.mount(w.create(withGroup(pod("web", "a"), 4321)))["data"].Path
	if got := one[*csi.NodeStageVolumeRequest](t, a).GetVolumeCapability().GetMount().GetFsType(); got != "xfs" {
		t.Errorf("the filesystem type is %q", got)
	}
	if got := w.groupOf(target); got != 4321 {
		t.Errorf("the group is %d", got)
	}
}

func forgetful(d *csidriver.Driver) { d.Forgetful = true }

// A driver whose volume was deleted without it answers NOT_FOUND to the calls that undo
// the use. If the volume is not mounted, these steps count as done.
func TestUnpublish_aVolumeThatTheDriverDoesNotKnow(t *testing.T) {
	w, _ := newServing(t, forgetful)
	w.ensured("a")
	p := w.create(pod("web", "a"))
	target := w.mount(p)["data"].Path
	w.driver.Forget("id-pvc-uid-a")
	if err := w.manager.UnmountPod(t.Context(), p); err == nil || !strings.Contains(err.Error(), "is not known") || !isMounted(target) {
		t.Fatalf("it is mounted, and the answer is %v", err)
	}
	if err := unix.Unmount(target, 0); err != nil {
		t.Fatal(err)
	}
	w.unmount(p)
	w.isIdle()
}

// What is not empty has data in it that a mount hid or a failed one left bare.
func TestUnpublish_keepsADirectoryWithFiles(t *testing.T) {
	w, _ := newServing(t, forgetful)
	w.ensured("a")
	p := w.create(pod("web", "a"))
	target := w.mount(p)["data"].Path
	w.driver.Forget("id-pvc-uid-a")
	if err := unix.Unmount(target, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(target+"/file", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.manager.UnmountPod(t.Context(), p); err == nil || !strings.Contains(err.Error(), "is not free") {
		t.Errorf("the answer is %v", err)
	}
	if err := os.Remove(target + "/file"); err != nil {
		t.Fatal(err)
	}
	w.unmount(p)
	w.isIdle()
}

// A staged filesystem that is still mounted keeps its record after any answer: without
// the record, the next host does not know of the mount.
func TestUnstage_keepsTheRecordOfAMount(t *testing.T) {
	for name, answer := range map[string]error{
		"the driver does not know the volume": csidriver.Fail(codes.NotFound, "no such volume"),
		"the driver does not know the call":   csidriver.Fail(codes.Unimplemented, "no such call"),
	} {
		t.Run(name, func(t *testing.T) {
			w, a := newServing(t, stagesATmpfs)
			w.ensured("a")
			p := w.create(pod("web", "a"))
			w.mount(p)
			staging := w.uses()[0].StagingPath
			a.fail = func(rpc string, _ int) error {
				if rpc == "NodeUnstageVolume" {
					return answer
				}
				return nil
			}
			err := w.manager.UnmountPod(t.Context(), p)
			if err == nil || len(w.uses()) != 1 || !isMounted(staging) {
				t.Fatalf("the staging path is mounted, %d uses are recorded, and the answer is %v", len(w.uses()), err)
			}
			for _, want := range []string{"driver d.example", staging + " is still mounted", "'umount " + staging + "'"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q: %v", want, err)
				}
			}
			if err := unix.Unmount(staging, 0); err != nil {
				t.Fatal(err)
			}
			w.unmount(p)
			if uses := w.uses(); len(uses) > 0 {
				t.Errorf("recorded: %+v", uses)
			}
		})
	}
}
