//go:build monitoring

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	csiclient "github.com/holdfast-csi/holdfast/internal/csi/client"
)

// volume is a staged volume of a driver whose pool is on an ext4: copies take long there,
// and freeze the volume's filesystem meanwhile.
type volume struct {
	t         *testing.T
	owner     *testing.T // of the driver's processes, which outlive the parts of the test
	directory string     // short: it is part of a socket's path
	page      string     // address of the driver's metrics
	process   *process
	client    *csiclient.Client
	created   *csi.Volume
}

func newVolume(t *testing.T) *volume {
	t.Helper()
	directory, err := os.MkdirTemp("", "hm") //nolint:usetesting // a socket has no room in the path of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	v := &volume{t: t, owner: t, directory: directory, page: address(t)}
	t.Cleanup(func() {
		if err := os.RemoveAll(directory); err != nil {
			t.Error(err)
		}
	})
	disk(t, v.file("disk.img"), 256<<20, v.file("disk"), "mkfs.ext4", "-q")
	v.start("")
	if v.client, err = csiclient.Dial("unix://"+v.file("csi.sock"), csiclient.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.client.Close() })
	eventually(t, "the driver creates a volume", func() string {
		v.created, err = v.client.CreateVolume(t.Context(), &csi.CreateVolumeRequest{
			Name: "data", CapacityRange: &csi.CapacityRange{RequiredBytes: 32 << 20}, VolumeCapabilities: []*csi.VolumeCapability{writer()},
		})
		return complaint(err)
	})
	if err := os.MkdirAll(v.staging(), 0o700); err != nil {
		t.Fatal(err)
	}
	v.stage()
	return v
}

// end removes the volume. If the test failed in the middle of a fault, it ends the fault.
func (v *volume) end() {
	if v.t.Failed() {
		for _, repair := range [][]string{
			{"fsfreeze", "--unfreeze", v.file("disk")}, {"umount", "--types=tmpfs", v.staging()}, {"fsfreeze", "--unfreeze", v.staging()},
		} {
			_ = exec.Command(repair[0], repair[1:]...).Run() // fails if there is no such fault
		}
	}
	v.unstage()
	if err := v.client.DeleteVolume(context.WithoutCancel(v.t.Context()), &csi.DeleteVolumeRequest{VolumeId: v.created.GetVolumeId()}); err != nil {
		v.t.Error(err)
	}
}

func complaint(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

func (v *volume) file(name string) string { return filepath.Join(v.directory, name) }

func (v *volume) staging() string { return v.file("kubelet/staged") }

func (v *volume) target() target { return target{job: "volume", address: v.page} }

// start starts the driver, with terms of package failpoint.
func (v *volume) start(failpoints string) {
	v.t.Helper()
	v.process = start(v.owner, "driver", "env", "HOLDFAST_FAILPOINTS="+failpoints, programs.holdfast, "driver", "--backend=local",
		"--node-id=here", "--endpoint=unix://"+v.file("csi.sock"), "--pool="+v.file("disk/pool"),
		"--kubelet-dir="+v.file("kubelet"), "--metrics-address="+v.page)
}

func (v *volume) stage() {
	v.t.Helper()
	eventually(v.t, "the volume is staged", func() string {
		return complaint(v.client.NodeStageVolume(v.t.Context(), &csi.NodeStageVolumeRequest{
			VolumeId: v.created.GetVolumeId(), VolumeContext: v.created.GetVolumeContext(),
			StagingTargetPath: v.staging(), VolumeCapability: writer(),
		}))
	})
}

func (v *volume) unstage() {
	v.t.Helper()
	eventually(v.t, "the volume is unstaged", func() string {
		return complaint(v.client.NodeUnstageVolume(context.WithoutCancel(v.t.Context()), &csi.NodeUnstageVolumeRequest{
			VolumeId: v.created.GetVolumeId(), StagingTargetPath: v.staging(),
		}))
	})
}

// write starts a process that writes to the volume. ended is closed when it ends.
func (v *volume) write(script string) (ended chan struct{}, process *exec.Cmd) {
	v.t.Helper()
	process, ended = exec.Command("sh", "-c", script), make(chan struct{})
	process.Dir = v.staging() // of the volume, whatever covers its mount point later
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := process.Start(); err != nil {
		v.t.Fatal(err)
	}
	go func() {
		_ = process.Wait()
		close(ended)
	}()
	return ended, process
}

// TestAlerts_ofVolumes injects faults into a volume in use.
func TestAlerts_ofVolumes(t *testing.T) {
	v := newVolume(t)
	defer v.end() // while the driver runs that a part of the test started last
	w := watch(t, v.target())
	w.quiet()
	for _, fault := range []struct {
		name string
		test func(*volume, *watcher)
	}{
		{"a filesystem with an error", volumeAbnormal},
		{"a disk that hangs below a writer", volumeUnresponsive},
		{"a filesystem that is frozen", filesystemFrozen},
	} {
		t.Run(fault.name, func(t *testing.T) {
			outer := v.t
			v.t = t
			defer func() { v.t = outer }()
			fault.test(v, w.in(t))
		})
	}
}

// volumeAbnormal has the kernel find an error in the volume's filesystem. The repair is
// that of the runbook: stage it again.
func volumeAbnormal(v *volume, w *watcher) {
	device := command(v.t, "findmnt", "--noheadings", "--output=SOURCE", "--mountpoint="+v.staging())
	write(v.t, filepath.Join("/sys/fs/ext4", filepath.Base(device), "trigger_fs_error"), "1")
	w.fires("HoldfastVolumeAbnormal")
	v.unstage()
	v.stage()
	w.stops("HoldfastVolumeAbnormal")
}

// volumeUnresponsive freezes the filesystem of the pool, as a disk that does not answer.
func volumeUnresponsive(v *volume, w *watcher) {
	ended, process := v.write("while sleep 0.1; do date >now; sync now; done")
	pool := v.file("disk")
	command(v.t, "fsfreeze", "--freeze", pool)
	w.fires("HoldfastVolumeUnresponsive")
	command(v.t, "fsfreeze", "--unfreeze", pool)
	w.stops("HoldfastVolumeUnresponsive")
	if err := process.Process.Kill(); err != nil {
		v.t.Error(err)
	}
	<-ended
}

// filesystemFrozen kills the driver while it has frozen the volume for a snapshot. An
// administrator mounts something over the volume before the driver runs again, so that the
// driver cannot thaw it.
func filesystemFrozen(v *volume, w *watcher) {
	v.process.stop()
	v.start("local/copy/frozen=kill")
	request := &csi.CreateSnapshotRequest{SourceVolumeId: v.created.GetVolumeId(), Name: "night"}
	eventually(v.t, "the driver dies", func() string {
		if _, err := v.client.CreateSnapshot(v.t.Context(), request); err == nil {
			v.t.Fatal("there is a snapshot")
		}
		select {
		case <-v.process.ended:
			return ""
		default:
			return "it lives"
		}
	})
	written, _ := v.write("echo later >file")
	command(v.t, "mount", "-t", "tmpfs", "none", v.staging())
	v.start("")
	w.fires("HoldfastFilesystemFrozen")
	select {
	case <-written:
		v.t.Error("a process wrote to the frozen filesystem")
	default:
	}
	command(v.t, "umount", v.staging())
	w.stops("HoldfastFilesystemFrozen", "HoldfastTargetDown", "HoldfastPoolDegraded")
	<-written
	var snapshot *csi.Snapshot
	eventually(v.t, "the snapshot is made", func() (text string) {
		var err error
		snapshot, err = v.client.CreateSnapshot(v.t.Context(), request)
		return complaint(err)
	})
	if err := v.client.DeleteSnapshot(v.t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: snapshot.GetSnapshotId()}); err != nil {
		v.t.Error(err)
	}
}
