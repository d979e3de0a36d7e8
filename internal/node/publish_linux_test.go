package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

func staged(t *testing.T, c backend.Capability, pods ...string) *fixture {
	t.Helper()
	f := newFixture(t)
	size := sizes["ext4"]
	if c.FSType != "" {
		size = sizes[c.FSType]
	}
	f.backend.add(t, "vol-a", size)
	f.cleanUp("vol-a", pods...)
	f.must(f.stage("vol-a", c))
	return f
}

func TestPublish_readOnly(t *testing.T) {
	for fsType := range sizes {
		t.Run(fsType, func(t *testing.T) {
			f := staged(t, filesystem(fsType), "reader", "writer")
			f.must(f.publish("vol-a", "reader", filesystem(fsType), true))
			f.must(f.publish("vol-a", "writer", filesystem(fsType), false))
			f.must(f.publish("vol-a", "reader", filesystem(fsType), true))
			f.write(filepath.Join(f.target("vol-a", "writer"), "file"), "seen")
			f.wantContent(filepath.Join(f.target("vol-a", "reader"), "file"), "seen")
			err := os.WriteFile(filepath.Join(f.target("vol-a", "reader"), "other"), nil, 0o600)
			if !errors.Is(err, unix.EROFS) {
				t.Errorf("a write through the read-only mount: %v", err)
			}
			f.wantError(f.publish("vol-a", "reader", filesystem(fsType), false), backend.ErrExists)
			f.wantError(f.publish("vol-a", "writer", filesystem(fsType), true), backend.ErrExists)
			f.wantError(f.publish("vol-a", "writer", block(), false), backend.ErrPrecondition)
		})
	}
}

func TestPublish_readerModesAreReadOnly(t *testing.T) {
	c := backend.Capability{Mode: backend.MultiNodeReaderOnly, FSType: "ext4"}
	f := staged(t, c, "pod")
	f.must(f.publish("vol-a", "pod", c, false))
	f.must(f.publish("vol-a", "pod", c, false))
	if err := os.WriteFile(filepath.Join(f.target("vol-a", "pod"), "x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("a write: %v", err)
	}
	f.must(f.stage("vol-a", c))
	f.wantError(f.stage("vol-a", filesystem("ext4")), backend.ErrExists)
}

func TestPublish_singleWriterHasOneTarget(t *testing.T) {
	for name, c := range map[string]backend.Capability{
		"filesystem": {Mode: backend.SingleNodeSingleWriter, FSType: "ext4"},
		"block":      {Mode: backend.SingleNodeSingleWriter, Block: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := staged(t, c, "one", "two")
			f.must(f.publish("vol-a", "one", c, false))
			f.must(f.publish("vol-a", "one", c, false))
			err := f.publish("vol-a", "two", c, false)
			f.wantError(err, backend.ErrPrecondition)
			if !strings.Contains(err.Error(), f.target("vol-a", "one")) {
				t.Errorf("error %q does not name the first target", err)
			}
			if _, err := os.Lstat(f.target("vol-a", "two")); !os.IsNotExist(err) {
				t.Errorf("the refused target was made: %v", err)
			}
			f.must(f.unpublish("vol-a", "one"))
			f.must(f.publish("vol-a", "two", c, false))
		})
	}
}

func TestPublish_singleNodeWriterMayHaveSeveralTargets(t *testing.T) {
	c := backend.Capability{Mode: backend.SingleNodeWriter, FSType: "ext4"}
	f := staged(t, c, "one", "two")
	f.must(f.publish("vol-a", "one", c, false))
	f.must(f.publish("vol-a", "two", c, false))
}

func TestPublish_needsAStagedVolume(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol-a", sizes["ext4"])
	f.cleanUp("vol-a", "pod")
	for _, c := range []backend.Capability{filesystem("ext4"), block()} {
		f.wantError(f.publish("vol-a", "pod", c, false), backend.ErrPrecondition)
	}
	err := f.engine.Publish(t.Context(), PublishRequest{VolumeID: "vol-a", TargetPath: f.target("vol-a", "pod"), Capability: filesystem("ext4")})
	f.wantError(err, backend.ErrPrecondition)
	err = f.engine.Publish(t.Context(), PublishRequest{VolumeID: "vol-a", StagingPath: filepath.Join(f.kubelet, "none", "such"), TargetPath: f.target("vol-a", "pod"), Capability: filesystem("ext4")})
	f.wantError(err, backend.ErrPrecondition)
	if _, err := os.Lstat(f.target("vol-a", "pod")); !os.IsNotExist(err) {
		t.Errorf("the target was made: %v", err)
	}
}

func TestPublish_refusesAnothersStagingPath(t *testing.T) {
	f := staged(t, filesystem("ext4"), "pod")
	f.backend.add(t, "vol-b", sizes["ext4"])
	f.cleanUp("vol-b", "pod")
	f.must(f.stage("vol-b", filesystem("ext4")))
	err := f.engine.Publish(t.Context(), PublishRequest{VolumeID: "vol-a", StagingPath: f.stagingDir("vol-b"), TargetPath: f.target("vol-a", "pod"), Capability: filesystem("ext4")})
	f.wantError(err, backend.ErrPrecondition)
}

func TestPublish_namesTheForeignMountInItsWay(t *testing.T) {
	f := staged(t, filesystem("ext4"), "pod")
	target := f.mkdir(f.target("vol-a", "pod"))
	f.must(unix.Mount("another", target, "tmpfs", 0, "size=64k"))
	err := f.publish("vol-a", "pod", filesystem("ext4"), false)
	f.wantError(err, backend.ErrPrecondition)
	if !strings.Contains(err.Error(), "tmpfs of another") {
		t.Errorf("error %q", err)
	}
	f.wantError(f.unpublish("vol-a", "pod"), backend.ErrPrecondition)
	f.wantError(f.engine.Unpublish(t.Context(), "vol-unknown", target), backend.ErrPrecondition)
	f.must(unix.Unmount(target, 0))
}

// The target of one volume is not taken away by a call for another one, known
// or unknown.
func TestUnpublish_leavesAnotherVolumeAlone(t *testing.T) {
	f := staged(t, filesystem("ext4"), "pod")
	f.backend.add(t, "vol-b", sizes["ext4"])
	f.must(f.publish("vol-a", "pod", filesystem("ext4"), false))
	for _, id := range []string{"vol-b", "vol-unknown", "csi-" + strings.Repeat("0", 64)} {
		f.wantError(f.engine.Unpublish(t.Context(), id, f.target("vol-a", "pod")), backend.ErrPrecondition)
	}
	f.write(filepath.Join(f.target("vol-a", "pod"), "file"), "still there")
}

func TestUnpublish_toleratesAHalfDoneUnpublish(t *testing.T) {
	for name, prepare := range map[string]func(f *fixture, target string){
		"nothing there":       func(*fixture, string) {},
		"empty directory":     func(f *fixture, target string) { f.mkdir(target) },
		"empty file":          func(f *fixture, target string) { f.write(target, "") },
		"no parent directory": func(f *fixture, target string) { f.must(os.Remove(filepath.Dir(target))) },
		"mounted twice": func(f *fixture, target string) {
			f.must(f.publish("vol-a", "pod", filesystem("ext4"), false))
			f.must(unix.Mount(f.stagingDir("vol-a"), target, "", unix.MS_BIND, ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := staged(t, filesystem("ext4"))
			target := f.target("vol-a", "pod")
			prepare(f, target)
			for range 2 {
				f.must(f.engine.Unpublish(t.Context(), "vol-a", target))
			}
			if _, err := os.Lstat(target); !os.IsNotExist(err) {
				t.Errorf("the target stayed: %v", err)
			}
		})
	}
}

func TestUnpublish_neverRemovesFiles(t *testing.T) {
	f := staged(t, filesystem("ext4"))
	target := f.mkdir(f.target("vol-a", "pod"))
	f.write(filepath.Join(target, "file"), "not ours")
	f.wantError(f.unpublish("vol-a", "pod"), backend.ErrPrecondition)
	f.wantContent(filepath.Join(target, "file"), "not ours")
	f.must(os.RemoveAll(target))
	f.write(target, "not ours")
	f.wantError(f.unpublish("vol-a", "pod"), backend.ErrPrecondition)
	f.wantContent(target, "not ours")
}

func TestUnpublish_inUseByAProcess(t *testing.T) {
	f := staged(t, filesystem("ext4"), "pod")
	f.must(f.publish("vol-a", "pod", filesystem("ext4"), false))
	file, err := os.Create(filepath.Join(f.target("vol-a", "pod"), "file"))
	f.must(err)
	f.wantError(f.unpublish("vol-a", "pod"), backend.ErrInUse)
	f.must(file.Close())
	f.must(f.unpublish("vol-a", "pod"))
}

func TestUnpublish_twoTargetsAtOnce(t *testing.T) {
	f := staged(t, filesystem("ext4"), "one", "two")
	for range 20 {
		f.must(f.publish("vol-a", "one", filesystem("ext4"), false))
		f.must(f.publish("vol-a", "two", filesystem("ext4"), false))
		var group sync.WaitGroup
		for _, target := range []string{f.target("vol-a", "one"), f.target("vol-a", "two")} {
			group.Go(func() {
				if err := f.engine.Unpublish(t.Context(), "vol-a", target); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	}
}

func TestPaths_refused(t *testing.T) {
	f := staged(t, filesystem("ext4"))
	f.must(os.Symlink(f.mkdir(filepath.Join(f.dir, "elsewhere")), filepath.Join(f.kubelet, "link")))
	f.must(os.Symlink(f.backend.dir, filepath.Join(f.kubelet, "pool")))
	f.write(filepath.Join(f.kubelet, "file"), "")
	for name, path := range map[string]string{
		"empty":              "",
		"relative":           "pods/mount",
		"not clean":          f.kubelet + "/pods/../mount",
		"double separator":   f.kubelet + "//mount",
		"final separator":    f.kubelet + "/mount/",
		"root":               "/",
		"pool":               f.backend.dir,
		"in the pool":        f.backend.dir + "/vol-a/mount",
		"symlink":            f.kubelet + "/link",
		"below a symlink":    f.kubelet + "/link/mount",
		"symlink to pool":    f.kubelet + "/pool/mount",
		"below a file":       f.kubelet + "/file/mount",
		"zero byte":          f.kubelet + "/a\x00b",
		"longer than a path": "/" + strings.Repeat("a/", 2100) + "a",
		"long component":     f.kubelet + "/" + strings.Repeat("n", 300),
		"magic link":         "/proc/self/root/tmp/mount",
	} {
		t.Run(name, func(t *testing.T) {
			publish := f.engine.Publish(t.Context(), PublishRequest{VolumeID: "vol-a", StagingPath: f.stagingDir("vol-a"), TargetPath: path, Capability: filesystem("ext4")})
			stage := f.engine.Stage(t.Context(), StageRequest{VolumeID: "vol-b", StagingPath: path, Capability: filesystem("ext4")})
			for step, err := range map[string]error{"publish": publish, "stage": stage} {
				if !errors.Is(err, backend.ErrInvalid) {
					t.Errorf("%s: %v", step, err)
				}
			}
			unpublish := f.engine.Unpublish(t.Context(), "vol-a", path)
			if unpublish == nil {
				t.Error("unpublish found it good")
			}
		})
	}
	if _, err := os.Lstat(filepath.Join(f.kubelet, "link")); err != nil {
		t.Errorf("a symlink that is not ours was removed: %v", err)
	}
}

func TestPaths_kubeletDirectoryMayBeASymlink(t *testing.T) {
	f := newFixture(t)
	link := filepath.Join(f.dir, "var-lib-kubelet")
	f.must(os.Symlink(f.kubelet, link))
	f.backend.add(t, "vol-a", sizes["ext4"])
	f.kubelet = link
	f.engine = newEngine(t, Options{Backend: f.backend, KubeletDir: link, Forbidden: []string{f.backend.dir}, Traits: backend.Traits{Block: true}})
	f.cleanUp("vol-a", "pod")
	c := backend.Capability{Mode: backend.SingleNodeSingleWriter, FSType: "ext4"}
	f.must(f.stage("vol-a", c))
	f.must(f.publish("vol-a", "pod", c, false))
	f.must(f.publish("vol-a", "pod", c, false))
	f.must(f.unpublish("vol-a", "pod"))
}

func TestPaths_asLongAsTheSystemAllows(t *testing.T) {
	f := staged(t, filesystem("ext4"))
	path := filepath.Join(f.kubelet, "pods")
	for len(path) < 3500 {
		path = filepath.Join(path, strings.Repeat("d", 200))
	}
	f.mkdir(path)
	target := filepath.Join(path, "mount")
	f.must(f.engine.Publish(t.Context(), PublishRequest{VolumeID: "vol-a", StagingPath: f.stagingDir("vol-a"), TargetPath: target, Capability: filesystem("ext4")}))
	f.must(f.engine.Unpublish(t.Context(), "vol-a", target))
}

// A pod that can write to a directory on the way swaps it for a symlink, again
// and again, while its volume is published and unpublished. The driver must never mount
// or remove anything at the link's target.
func TestPublish_symlinkSwapLeadsNowhere(t *testing.T) {
	f := staged(t, filesystem("ext4"))
	victim := f.mkdir(filepath.Join(f.dir, "victim", "mount"))
	pod := f.mkdir(filepath.Join(f.kubelet, "pods", "evil"))
	swapped, aside := filepath.Join(pod, "volumes"), filepath.Join(pod, "aside")
	f.mkdir(swapped)
	f.must(os.Symlink(filepath.Dir(victim), aside))
	target := filepath.Join(swapped, "mount")

	var stop atomic.Bool
	var group sync.WaitGroup
	group.Go(func() {
		for !stop.Load() {
			// Exchanging two names is one step: there is always something there.
			_ = unix.Renameat2(unix.AT_FDCWD, swapped, unix.AT_FDCWD, aside, unix.RENAME_EXCHANGE)
		}
	})
	published, refused := 0, 0
	for range 400 {
		err := f.engine.Publish(t.Context(), PublishRequest{VolumeID: "vol-a", StagingPath: f.stagingDir("vol-a"), TargetPath: target, Capability: filesystem("ext4")})
		if err == nil {
			published++
		} else {
			refused++
		}
		if mounts := nodetest.MountsBelow(t, filepath.Dir(victim)); len(mounts) > 0 {
			t.Errorf("mounted at %v", mounts)
			break
		}
		_ = f.engine.Unpublish(t.Context(), "vol-a", target)
	}
	stop.Store(true)
	group.Wait()
	if _, err := os.Stat(victim); err != nil {
		t.Errorf("the victim's directory was removed: %v", err)
	}
	if info, err := os.Lstat(swapped); err == nil && info.Mode()&os.ModeSymlink != 0 {
		f.must(unix.Renameat2(unix.AT_FDCWD, swapped, unix.AT_FDCWD, aside, unix.RENAME_EXCHANGE))
	}
	f.must(f.engine.Unpublish(t.Context(), "vol-a", target))
	if published == 0 || refused == 0 {
		t.Logf("published %d times, refused %d times: the race did not occur", published, refused)
	}
}

func TestPublish_targetAndStagingMayNotContainEachOther(t *testing.T) {
	f := staged(t, filesystem("ext4"))
	for _, target := range []string{f.stagingDir("vol-a"), filepath.Join(f.stagingDir("vol-a"), "inside"), filepath.Dir(f.stagingDir("vol-a"))} {
		err := f.engine.Publish(t.Context(), PublishRequest{VolumeID: "vol-a", StagingPath: f.stagingDir("vol-a"), TargetPath: target, Capability: filesystem("ext4")})
		f.wantError(err, backend.ErrInvalid)
	}
}

func TestBlock_endToEnd(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol-a", 16*mebibyte)
	f.cleanUp("vol-a", "writer", "second", "reader")
	for range 2 {
		f.must(f.stage("vol-a", block()))
		f.must(f.publish("vol-a", "writer", block(), false))
		f.must(f.publish("vol-a", "second", block(), false))
	}
	f.wantError(f.publish("vol-a", "writer", block(), true), backend.ErrExists)
	f.wantError(f.publish("vol-a", "reader", block(), true), backend.ErrPrecondition)
	f.wantError(f.stage("vol-a", filesystem("ext4")), backend.ErrExists)
	f.wantError(f.publish("vol-a", "other", filesystem("ext4"), false), backend.ErrPrecondition)
	if f.runner.runs.Load() != 0 {
		t.Errorf("%d programs were run for raw block", f.runner.runs.Load())
	}

	device, err := os.OpenFile(f.target("vol-a", "writer"), os.O_RDWR|unix.O_SYNC, 0)
	f.must(err)
	_, err = device.WriteAt([]byte("raw data"), 8192)
	f.must(errors.Join(err, device.Close()))
	stats, err := f.engine.Stats(t.Context(), "vol-a", f.target("vol-a", "writer"), "")
	if want := (Stats{Block: true, Bytes: Usage{Total: 16 * mebibyte}}); err != nil || stats != want {
		t.Errorf("stats %+v, %v", stats, err)
	}

	f.must(f.unpublish("vol-a", "writer"))
	f.must(f.unpublish("vol-a", "second"))
	f.must(f.publish("vol-a", "reader", block(), true))
	f.must(f.stage("vol-a", block())) // as after a restart of the kubelet
	f.wantError(f.publish("vol-a", "writer", block(), false), backend.ErrPrecondition)
	if err := writeTo(f.target("vol-a", "reader")); err == nil {
		t.Error("the read-only device was written to")
	}
	f.must(f.unpublish("vol-a", "reader"))
	f.must(f.publish("vol-a", "writer", block(), false))
	f.must(writeTo(f.target("vol-a", "writer")))
	f.must(f.unpublish("vol-a", "writer"))
	f.must(f.unstage("vol-a"))
	nodetest.NoLeaks(t, f.dir)
	data, err := os.ReadFile(f.backend.path("vol-a"))
	if err != nil || string(data[8192:8200]) != "raw data" {
		t.Errorf("the file has %q, %v", data[8192:8200], err)
	}
	if entries, err := os.ReadDir(f.stagingDir("vol-a")); err != nil || len(entries) != 0 {
		t.Errorf("left in the staging directory: %v, %v", entries, err)
	}
}

// writeTo writes through a device node, and flushes the page cache.
func writeTo(path string) error {
	device, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = device.WriteAt(make([]byte, 4096), 0)
	if err == nil {
		err = device.Sync()
	}
	return errors.Join(err, device.Close())
}

// What the kubelet binds elsewhere does not make a repeated publish a second one.
func TestBlock_repeatedPublishOfASingleWriter(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol-a", mebibyte)
	f.cleanUp("vol-a", "pod")
	single := backend.Capability{Mode: backend.SingleNodeSingleWriter, Block: true}
	f.must(f.stage("vol-a", single))
	f.must(f.publish("vol-a", "pod", single, false))
	elsewhere := filepath.Join(f.dir, "map")
	f.write(elsewhere, "")
	f.must(unix.Mount(f.target("vol-a", "pod"), elsewhere, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(elsewhere, 0) })
	f.must(f.publish("vol-a", "pod", single, false))
	f.wantError(f.publish("vol-a", "other", single, false), backend.ErrPrecondition)
}

// The access of a loop device outlives its file: the next user of the machine's
// device must not find it read-only.
func TestBlock_aReadOnlyDeviceIsGivenBackWritable(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol-a", mebibyte)
	f.must(f.stage("vol-a", block()))
	f.must(f.publish("vol-a", "reader", block(), true))
	devices, err := f.backend.Devices(t.Context(), "vol-a")
	f.must(err)
	attribute := filepath.Join("/sys/block", filepath.Base(devices[0].Path), "ro")
	f.wantContent(attribute, "1\n")
	f.must(f.unpublish("vol-a", "reader"))
	f.must(f.unstage("vol-a"))
	f.wantContent(attribute, "0\n")
}

func TestBlock_isNotForAMountedFilesystem(t *testing.T) {
	f := staged(t, filesystem("ext4"))
	f.wantError(f.stage("vol-a", block()), backend.ErrExists)
	if _, err := os.Stat(filepath.Join(f.stagingDir("vol-a"), stagedNode)); !os.IsNotExist(err) {
		t.Errorf("a file was made in the volume: %v", err)
	}
}

// A name in the volume is the workload's, even this one.
func TestUnstage_leavesAFileNamedLikeTheBoundDevice(t *testing.T) {
	f := staged(t, filesystem("ext4"))
	f.write(filepath.Join(f.stagingDir("vol-a"), stagedNode), "")
	f.must(f.unstage("vol-a"))
	f.must(f.stage("vol-a", filesystem("ext4")))
	f.wantContent(filepath.Join(f.stagingDir("vol-a"), stagedNode), "")
}

func TestBlock_backendWithoutIt(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Traits.Block = false })
	f.backend.add(t, "vol-a", mebibyte)
	f.wantError(f.stage("vol-a", block()), backend.ErrInvalid)
}

// The device of a published volume can vanish: unplugged, or its loop device
// detached by hand.
func TestUnpublish_deviceIsGone(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol-a", mebibyte)
	f.must(f.stage("vol-a", block()))
	f.must(f.publish("vol-a", "pod", block(), false))
	f.must(f.backend.CloseDevice(context.Background(), "vol-a"))
	f.mustUnlessTaken(f.target("vol-a", "pod"), func() error { return f.unpublish("vol-a", "pod") })
	f.mustUnlessTaken(filepath.Join(f.stagingDir("vol-a"), stagedNode), func() error { return f.unstage("vol-a") })
}

// mustUnlessTaken calls undo, which may refuse a device node if another program
// of this machine has a file on the loop device of that number by now.
func (f *fixture) mustUnlessTaken(node string, undo func() error) {
	f.t.Helper()
	err := undo()
	if errors.Is(err, backend.ErrPrecondition) {
		var stat unix.Stat_t
		f.must(unix.Stat(node, &stat))
		backing := fmt.Sprintf("/sys/dev/block/%d:%d/loop/backing_file", unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
		if _, statErr := os.Stat(backing); statErr == nil {
			f.must(unix.Unmount(node, 0))
			err = undo()
		}
	}
	f.must(err)
}
