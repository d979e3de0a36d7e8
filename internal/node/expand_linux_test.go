package node

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/fs"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

func (f *fixture) expand(id, path string, required, limit int64) (int64, error) {
	f.t.Helper()
	return f.engine.Expand(f.t.Context(), ExpandRequest{VolumeID: id, VolumePath: path, StagingPath: f.stagingDir(id), Range: backend.SizeRange{Required: required, Limit: limit}})
}

func TestExpand_growsOnlineWithoutAProcess(t *testing.T) {
	for fsType, size := range sizes {
		for _, readOnly := range []bool{false, true} {
			t.Run(fsType, func(t *testing.T) {
				f := staged(t, filesystem(fsType), "pod")
				f.must(f.publish("vol-a", "pod", filesystem(fsType), readOnly))
				target := f.target("vol-a", "pod")
				before := f.runner.runs.Load()
				f.must(os.Truncate(f.backend.path("vol-a"), 2*size))
				if !fs.CanGrowMounted(fsType) {
					_, err := f.expand("vol-a", target, 2*size, 0)
					f.wantError(err, backend.ErrPrecondition)
					return
				}
				for range 2 {
					if got, err := f.expand("vol-a", target, 2*size, 0); err != nil || got != 2*size {
						t.Fatalf("%d bytes, %v", got, err)
					}
				}
				stats, err := f.engine.Stats(t.Context(), "vol-a", target, "")
				if err != nil || stats.Bytes.Total < size+size/2 {
					t.Errorf("%+v, %v", stats, err)
				}
				if f.runner.runs.Load() != before {
					t.Error("a program was run")
				}
			})
		}
	}
}

func TestExpand_block(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol-a", 16*mebibyte)
	f.cleanUp("vol-a", "pod", "second")
	f.must(f.stage("vol-a", block()))
	f.must(f.publish("vol-a", "pod", block(), false))
	f.must(f.publish("vol-a", "second", block(), false))
	f.must(os.Truncate(f.backend.path("vol-a"), 32*mebibyte))
	if size, err := f.expand("vol-a", f.target("vol-a", "pod"), 32*mebibyte, 0); err != nil || size != 32*mebibyte {
		t.Fatalf("%d bytes, %v", size, err)
	}
	for _, pod := range []string{"pod", "second"} {
		device, err := os.Open(f.target("vol-a", pod))
		f.must(err)
		if size, err := device.Seek(0, 2); err != nil || size != 32*mebibyte {
			t.Errorf("%s sees %d bytes, %v", pod, size, err)
		}
		closeQuietly(device)
	}
}

func TestExpand_refuses(t *testing.T) {
	f := staged(t, filesystem("ext4"))
	path := f.stagingDir("vol-a")
	for _, c := range []struct {
		id, path        string
		required, limit int64
		want            error
	}{
		{"vol-a", path, 64 * mebibyte, 0, backend.ErrOutOfRange},
		{"vol-a", path, 0, 16 * mebibyte, backend.ErrOutOfRange},
		{"vol-a", path, -1, 0, backend.ErrInvalid},
		{"vol-a", path, 2, 1, backend.ErrInvalid},
		{"vol-a", "relative", 0, 0, backend.ErrInvalid},
		{"vol-a", filepath.Join(f.kubelet, "none"), 0, 0, backend.ErrNotFound},
		{"vol-a", f.mkdir(filepath.Join(f.kubelet, "some")), 0, 0, backend.ErrNotFound},
		{"vol-x", path, 0, 0, backend.ErrNotFound},
		{"", path, 0, 0, backend.ErrInvalid},
	} {
		_, err := f.engine.Expand(t.Context(), ExpandRequest{VolumeID: c.id, VolumePath: c.path, Range: backend.SizeRange{Required: c.required, Limit: c.limit}})
		f.wantError(err, c.want)
	}
	if size, err := f.expand("vol-a", path, 0, 0); err != nil || size != sizes["ext4"] {
		t.Errorf("without a range: %d, %v", size, err)
	}
}

func TestExpand_readOnlyEverywhereIsRefused(t *testing.T) {
	c := backend.Capability{Mode: backend.MultiNodeReaderOnly, FSType: "xfs"}
	f := staged(t, c)
	f.must(os.Truncate(f.backend.path("vol-a"), 2*xfsMin))
	_, err := f.expand("vol-a", f.stagingDir("vol-a"), 2*xfsMin, 0)
	f.wantError(err, backend.ErrPrecondition)
}

func TestStats_ofAVolumeThatIsNotThere(t *testing.T) {
	f := staged(t, filesystem("ext4"))
	f.backend.add(t, "vol-b", mebibyte)
	for _, c := range []struct {
		id, path string
		want     error
	}{
		{"vol-a", filepath.Join(f.kubelet, "none"), backend.ErrNotFound},
		{"vol-a", f.mkdir(filepath.Join(f.kubelet, "some")), backend.ErrNotFound},
		{"vol-b", f.stagingDir("vol-a"), backend.ErrNotFound},
		{"vol-x", f.stagingDir("vol-a"), backend.ErrNotFound},
		{"vol-a", "", backend.ErrInvalid},
		{"", f.stagingDir("vol-a"), backend.ErrInvalid},
	} {
		_, err := f.engine.Stats(t.Context(), c.id, c.path, "")
		f.wantError(err, c.want)
	}
}

func TestStats_btrfsHasNoInodes(t *testing.T) {
	f := staged(t, filesystem("btrfs"))
	stats, err := f.engine.Stats(t.Context(), "vol-a", f.stagingDir("vol-a"), "")
	if err != nil || stats.Inodes != nil || stats.Bytes.Total == 0 {
		t.Errorf("%+v, %v", stats, err)
	}
}

func reasons(list []backend.HealthProblem) []string {
	var names []string
	for _, problem := range list {
		names = append(names, problem.Reason)
	}
	return names
}

func (f *fixture) health(id, path string) []string {
	f.t.Helper()
	list, err := f.engine.VolumeHealth(f.t.Context(), id, path, "")
	f.must(err)
	return reasons(list)
}

func TestVolumeHealth_healthyVolumesHaveNoProblem(t *testing.T) {
	for fsType := range sizes {
		f := staged(t, filesystem(fsType))
		if got := f.health("vol-a", f.stagingDir("vol-a")); len(got) != 0 {
			t.Errorf("%s: %v", fsType, got)
		}
		if got := f.health("vol-a", filepath.Join(f.kubelet, "not", "there")); len(got) != 0 {
			t.Errorf("%s where it is not: %v", fsType, got)
		}
	}
}

func TestVolumeHealth_reportsFilesystemErrors(t *testing.T) {
	f := staged(t, filesystem("ext4", "errors=remount-ro"))
	device, err := f.backend.Devices(t.Context(), "vol-a")
	f.must(err)
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(device[0].Path), "trigger_fs_error")
	f.must(os.WriteFile(trigger, []byte("test"), 0o200))
	got := f.health("vol-a", f.stagingDir("vol-a"))
	if len(got) != 2 || got[0] != ReasonFilesystemErrors || got[1] != ReasonFilesystemReadOnly {
		t.Errorf("%v", got)
	}
	// The same volume staged again is repaired first.
	f.must(f.unstage("vol-a"))
	f.must(f.stage("vol-a", filesystem("ext4")))
	if got := f.health("vol-a", f.stagingDir("vol-a")); len(got) != 0 {
		t.Errorf("after a check: %v", got)
	}
}

func TestVolumeHealth_reportsAFilesystemThatShutDown(t *testing.T) {
	f := staged(t, filesystem("xfs"), "pod")
	f.must(f.publish("vol-a", "pod", filesystem("xfs"), false))
	staging, target := f.stagingDir("vol-a"), f.target("vol-a", "pod")
	dir, err := os.Open(staging)
	f.must(err)
	const goingDown = 0x8004587d // XFS_IOC_GOINGDOWN, _IOR('X', 125, __u32)
	how := uint32(2)             // XFS_FSOP_GOING_FLAGS_NOLOGFLUSH
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), goingDown, uintptr(unsafe.Pointer(&how)))
	if errno != 0 {
		t.Fatal(errno)
	}
	closeQuietly(dir)
	if got := f.health("vol-a", staging); len(got) != 1 || got[0] != ReasonFilesystemFailed {
		t.Errorf("%v", got)
	}
	// It must be possible to get rid of it, and to have it again.
	f.must(f.engine.Unpublish(t.Context(), "vol-a", target))
	f.must(f.engine.Unstage(t.Context(), "vol-a", staging))
	f.must(f.stage("vol-a", filesystem("xfs")))
	if got := f.health("vol-a", staging); len(got) != 0 {
		t.Errorf("staged again: %v", got)
	}
}

func TestVolumeHealth_reportsAMissingDevice(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol-a", mebibyte)
	f.cleanUp("vol-a")
	f.must(f.stage("vol-a", block()))
	f.must(f.backend.CloseDevice(t.Context(), "vol-a"))
	node := filepath.Join(f.stagingDir("vol-a"), stagedNode)
	got := f.health("vol-a", node)
	if len(got) != 1 || got[0] != ReasonDeviceMissing {
		t.Errorf("%v", got)
	}
	// Another file may have the number of the loop device by now, and an unstage
	// leaves a device node that is not the volume's to an administrator.
	f.must(unix.Unmount(node, 0))
}

func TestVolumeHealth_includesTheBackendsProblems(t *testing.T) {
	f := staged(t, filesystem("ext4"))
	problem := backend.HealthProblem{Kind: backend.HealthDegraded, Reason: "DirectIOUnavailable", Message: "m"}
	f.backend.problems = []backend.HealthProblem{problem, problem}
	if got := f.health("vol-a", f.stagingDir("vol-a")); len(got) != 1 || got[0] != problem.Reason {
		t.Errorf("%v", got)
	}
	storage, err := f.engine.StorageHealth(t.Context())
	if err != nil || len(storage) != 2 {
		t.Errorf("%v, %v", storage, err)
	}
}

func TestVolumeHealth_unknownVolume(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Backend = plainNode{o.Backend} })
	_, err := f.engine.VolumeHealth(t.Context(), "vol-x", "", "")
	f.wantError(err, backend.ErrNotFound)
	nodetest.NoLeaks(t, f.dir)
}
