package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/command"
	"github.com/holdfast-csi/holdfast/internal/linux/fs"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

// A repeat changes nothing and starts no program. With each filesystem, btrfs too.
func TestStage_formatsABlankDeviceOnceAndKeepsItsFiles(t *testing.T) {
	for fsType, size := range sizes {
		t.Run(fsType, func(t *testing.T) {
			f := newFixture(t)
			f.backend.add(t, "vol-a", size)
			f.cleanUp("vol-a", "pod")

			f.must(f.stage("vol-a", filesystem(fsType)))
			if runs := f.runner.runs.Load(); runs != 1 {
				t.Errorf("%d programs were run for a fresh volume; want mkfs alone", runs)
			}
			if mark := f.backend.mark(t, "vol-a"); mark != (backend.FormatMark{FSType: fsType, Done: true}) {
				t.Errorf("mark %+v", mark)
			}
			f.must(f.stage("vol-a", filesystem(fsType)))
			f.must(f.publish("vol-a", "pod", filesystem(fsType), false))
			f.must(f.publish("vol-a", "pod", filesystem(fsType), false))
			f.write(filepath.Join(f.target("vol-a", "pod"), "file"), "kept")

			f.must(f.unpublish("vol-a", "pod"))
			f.must(f.unpublish("vol-a", "pod"))
			f.must(f.unstage("vol-a"))
			f.must(f.unstage("vol-a"))
			nodetest.NoLeaks(t, f.dir)
			if _, err := os.Lstat(f.target("vol-a", "pod")); !os.IsNotExist(err) {
				t.Errorf("the target stayed: %v", err)
			}

			f.must(f.stage("vol-a", filesystem(fsType)))
			f.wantContent(filepath.Join(f.stagingDir("vol-a"), "file"), "kept")
			if runs := f.runner.runs.Load(); runs != 1 {
				t.Errorf("%d programs were run in all; want the first mkfs alone", runs)
			}
		})
	}
}

// fill writes a content onto a blank volume with a tool, or directly.
func (f *fixture) fill(id string, command ...string) {
	f.t.Helper()
	for i := range command {
		command[i] = strings.ReplaceAll(command[i], "FILE", f.backend.path(id))
	}
	f.run(command[0], command[1:]...)
}

func (f *fixture) patch(id string, offset int64, data string) {
	f.t.Helper()
	file, err := os.OpenFile(f.backend.path(id), os.O_WRONLY, 0)
	f.must(err)
	_, err = file.WriteAt([]byte(data), offset)
	f.must(errors.Join(err, file.Close()))
}

func (f *fixture) sum(id string) string {
	f.t.Helper()
	file, err := os.Open(f.backend.path(id))
	f.must(err)
	defer closeQuietly(file)
	hash := sha256.New()
	_, err = io.Copy(hash, file)
	f.must(err)
	return string(hash.Sum(nil))
}

func TestStage_refusesForeignContent(t *testing.T) {
	for name, c := range map[string]struct {
		size    int64
		corrupt func(f *fixture)
		want    error
		says    string
	}{
		"another filesystem":  {xfsMin, func(f *fixture) { f.fill("vol-a", "mkfs.xfs", "-q", "FILE") }, backend.ErrPrecondition, "xfs"},
		"foreign filesystem":  {sizes["ext4"], func(f *fixture) { f.fill("vol-a", "mkfs.vfat", "FILE") }, backend.ErrPrecondition, "vfat"},
		"swap":                {sizes["ext4"], func(f *fixture) { f.fill("vol-a", "mkswap", "FILE") }, backend.ErrPrecondition, "swap"},
		"partition table":     {sizes["ext4"], func(f *fixture) { f.fill("vol-a", "sh", "-c", "echo 'label: gpt\n,,' | sfdisk -q FILE") }, backend.ErrPrecondition, "gpt"},
		"MBR":                 {sizes["ext4"], func(f *fixture) { f.fill("vol-a", "sh", "-c", "echo 'label: dos\n,,' | sfdisk -q FILE") }, backend.ErrPrecondition, "dos (a partition table)"},
		"damaged xfs":         {xfsMin, func(f *fixture) { f.fill("vol-a", "mkfs.xfs", "-q", "FILE"); f.patch("vol-a", 200, "?") }, backend.ErrDataLoss, "checksum"},
		"LVM":                 {sizes["ext4"], func(f *fixture) { f.patch("vol-a", 512+24, "LVM2 001") }, backend.ErrPrecondition, "LVM2"},
		"encrypted":           {sizes["ext4"], func(f *fixture) { f.patch("vol-a", 0, "LUKS\xba\xbe") }, backend.ErrPrecondition, "LUKS"},
		"unknown data":        {sizes["ext4"], func(f *fixture) { f.patch("vol-a", 12345, "?") }, backend.ErrPrecondition, "12345"},
		"unknown data at end": {sizes["ext4"], func(f *fixture) { f.patch("vol-a", sizes["ext4"]-1, "?") }, backend.ErrPrecondition, "unknown"},
		"truncated ext4": {sizes["ext4"], func(f *fixture) {
			f.fill("vol-a", "mkfs.ext4", "-q", "FILE")
			f.must(os.Truncate(f.backend.path("vol-a"), 16*mebibyte))
		}, backend.ErrDataLoss, "truncated"},
		"damaged ext4": {sizes["ext4"], func(f *fixture) { f.fill("vol-a", "mkfs.ext4", "-q", "FILE"); f.patch("vol-a", 1024+0x50, "?") }, backend.ErrDataLoss, "checksum"},
		"zeroed ext4": {sizes["ext4"], func(f *fixture) {
			f.fill("vol-a", "mkfs.ext4", "-q", "FILE")
			f.patch("vol-a", 1024, strings.Repeat("\x00", 1024))
		}, backend.ErrPrecondition, "unknown"},
		"blank after it was made": {sizes["ext4"], func(f *fixture) {
			f.must(f.backend.SetFormatMark(f.t.Context(), "vol-a", backend.FormatMark{FSType: "ext4", Done: true}))
		}, backend.ErrDataLoss, "blank"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.backend.add(t, "vol-a", c.size)
			f.cleanUp("vol-a")
			c.corrupt(f)
			before := f.sum("vol-a")
			for range 2 {
				err := f.stage("vol-a", filesystem("ext4"))
				f.wantError(err, c.want)
				if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "vol-a") {
					t.Errorf("error %q does not say %q and the volume", err, c.says)
				}
			}
			if f.runner.runs.Load() != 0 || f.sum("vol-a") != before {
				t.Errorf("%d programs were run; unchanged = %t", f.runner.runs.Load(), f.sum("vol-a") == before)
			}
			nodetest.NoLeaks(t, f.dir)
		})
	}
}

func TestStage_unreadableDeviceIsNeverFormatted(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol-a", 32*mebibyte)
	f.cleanUp("vol-a")
	device, err := f.backend.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: "vol-a"})
	f.must(err)
	// The device reaches beyond its file now: a direct read there is an I/O error.
	f.must(os.Truncate(f.backend.path("vol-a"), 8*mebibyte))
	f.wantError(f.stage("vol-a", filesystem("ext4")), backend.ErrUnavailable)
	if f.runner.runs.Load() != 0 || f.backend.mark(t, "vol-a") != (backend.FormatMark{}) {
		t.Errorf("%d programs, mark %+v", f.runner.runs.Load(), f.backend.mark(t, "vol-a"))
	}
	f.must(device.Release())
}

// Another user of the device may be a mount of another mount namespace, which the mount
// table of this process lacks.
func TestStage_doesNotFormatADeviceWithAnotherUser(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol-a", sizes["ext4"])
	f.cleanUp("vol-a")
	device, err := f.backend.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: "vol-a"})
	f.must(err)
	user, err := os.OpenFile(device.Path, os.O_RDONLY|os.O_EXCL, 0)
	f.must(err)
	f.wantError(f.stage("vol-a", filesystem("ext4")), backend.ErrBusy)
	if runs := f.runner.runs.Load(); runs != 0 {
		t.Errorf("%d programs were run", runs)
	}
	f.must(user.Close())
	f.must(f.stage("vol-a", filesystem("ext4")))
	f.must(device.Release())
}

func TestStage_finishesAnInterruptedFormat(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol-a", sizes["ext4"])
	f.cleanUp("vol-a")
	f.must(f.backend.SetFormatMark(t.Context(), "vol-a", backend.FormatMark{FSType: "ext4"}))
	f.patch("vol-a", 4096, "half of a filesystem")
	f.must(f.stage("vol-a", filesystem("ext4")))
	if runs := f.runner.runs.Load(); runs != 1 {
		t.Errorf("%d programs", runs)
	}
}

func TestStage_rawUseEndsTheTrustInAnInterruptedFormat(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol-a", sizes["ext4"])
	f.cleanUp("vol-a")
	f.must(f.backend.SetFormatMark(t.Context(), "vol-a", backend.FormatMark{FSType: "ext4"}))
	f.must(f.stage("vol-a", block()))
	f.must(f.unstage("vol-a"))
	f.patch("vol-a", 4096, "a database")
	f.wantError(f.stage("vol-a", filesystem("ext4")), backend.ErrPrecondition)
}

func TestStage_takesTheFilesystemThatIsThereWhenNoneIsAskedFor(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol-a", xfsMin)
	f.cleanUp("vol-a")
	f.fill("vol-a", "mkfs.xfs", "-q", "FILE")
	f.must(f.stage("vol-a", filesystem("")))
	f.wantError(f.stage("vol-a", filesystem("ext4")), backend.ErrExists)
	f.must(f.stage("vol-a", filesystem("xfs")))
	if runs := f.runner.runs.Load(); runs != 0 {
		t.Errorf("%d programs", runs)
	}
}

func TestStage_makesTheDefaultWhenNoneIsAskedFor(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol-a", sizes["ext4"])
	f.cleanUp("vol-a")
	f.must(f.stage("vol-a", filesystem("")))
	if mark := f.backend.mark(t, "vol-a"); mark.FSType != "ext4" || !mark.Done {
		t.Errorf("mark %+v", mark)
	}
}

// plainNode hides the optional halves of a backend.
type plainNode struct{ backend.Node }

func TestStage_worksWithoutFormatMarks(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Backend = plainNode{o.Backend} })
	f.backend.add(t, "vol-a", sizes["ext4"])
	f.cleanUp("vol-a")
	f.must(f.stage("vol-a", filesystem("ext4")))
	if mark := f.backend.mark(t, "vol-a"); mark != (backend.FormatMark{}) {
		t.Errorf("mark %+v", mark)
	}
}

func TestStage_unknownVolumeIsNotFound(t *testing.T) {
	f := newFixture(t)
	f.wantError(f.stage("vol-x", filesystem("ext4")), backend.ErrNotFound)
	f.wantError(f.stage("vol-x", block()), backend.ErrNotFound)
	f.wantError(f.stage("", filesystem("ext4")), backend.ErrInvalid)
	f.must(f.unstage("vol-x"))
}

func TestStage_checksAFilesystemMarkedDamaged(t *testing.T) {
	for fsType, corrupt := range map[string][]string{
		"ext4": {"debugfs", "-w", "-R", "ssv state 2", "FILE"},
		"xfs":  {"xfs_db", "-x", "-c", "sb 0", "-c", "write features_incompat 0x1b", "FILE"}, // NEEDSREPAIR
	} {
		f := newFixture(t)
		f.backend.add(t, "vol-a", sizes[fsType])
		f.cleanUp("vol-a")
		f.fill("vol-a", "mkfs."+fsType, "-q", "FILE")
		f.fill("vol-a", corrupt...)
		f.must(f.stage("vol-a", filesystem(fsType)))
		if runs := f.runner.runs.Load(); runs != 1 {
			t.Errorf("%s: %d programs; want fsck alone", fsType, runs)
		}
	}
}

// The superblock is in order and the kernel finds the rest damaged.
func TestStage_damageThatTheKernelFindsIsDataLoss(t *testing.T) {
	for fsType, offset := range map[string]int64{"ext4": 2048, "xfs": 64 << 10} { // group descriptors, root inode
		f := newFixture(t)
		f.backend.add(t, "vol-a", sizes[fsType])
		f.cleanUp("vol-a")
		f.fill("vol-a", "mkfs."+fsType, "-q", "FILE")
		f.patch("vol-a", offset, strings.Repeat("damaged!", 64))
		f.wantError(f.stage("vol-a", filesystem(fsType)), backend.ErrDataLoss)
		if f.runner.runs.Load() != 0 {
			t.Errorf("%s: programs were run", fsType)
		}
		nodetest.NoLeaks(t, f.dir)
	}
}

// exits is a Runner whose programs end with a code and do nothing.
type exits int

func (e exits) Run(context.Context, command.Command) (command.Result, error) {
	return command.Result{ExitCode: int(e), Stderr: []byte("it is no good")}, nil
}

func TestStage_refusesUnrepairedErrors(t *testing.T) {
	for code, want := range map[int]string{4: "e2fsck -f /dev/loop", 0: "still marked"} {
		f := newFixture(t, func(o *Options) { o.Runner = exits(code) })
		f.backend.add(t, "vol-a", sizes["ext4"])
		f.cleanUp("vol-a")
		f.fill("vol-a", "mkfs.ext4", "-q", "FILE")
		f.fill("vol-a", "debugfs", "-w", "-R", "ssv state 2", "FILE")
		err := f.stage("vol-a", filesystem("ext4"))
		f.wantError(err, backend.ErrPrecondition)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q; want %q", err, want)
		}
	}
}

func TestStage_failedMkfsLeavesNothingAndIsRepeated(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol-a", sizes["ext4"])
	f.cleanUp("vol-a")
	good := f.engine.runner
	f.engine.runner = exits(1)
	f.wantError(f.stage("vol-a", filesystem("ext4")), backend.ErrPrecondition)
	nodetest.NoLeaks(t, f.dir)
	// mkfs said that it succeeded and made nothing: that is not a success either.
	f.engine.runner = exits(0)
	if err := f.stage("vol-a", filesystem("ext4")); err == nil {
		t.Fatal("a filesystem that is not there was staged")
	}
	f.engine.runner = good
	f.must(f.stage("vol-a", filesystem("ext4")))
}

func TestStage_growsAFilesystemSmallerThanItsDevice(t *testing.T) {
	for fsType, size := range sizes {
		t.Run(fsType, func(t *testing.T) {
			f := newFixture(t)
			f.backend.add(t, "vol-a", size)
			f.cleanUp("vol-a", "pod")
			f.must(f.stage("vol-a", filesystem(fsType)))
			f.write(filepath.Join(f.stagingDir("vol-a"), "file"), "kept")
			f.must(f.unstage("vol-a"))
			f.must(os.Truncate(f.backend.path("vol-a"), 2*size))
			f.must(f.stage("vol-a", filesystem(fsType)))
			f.must(f.publish("vol-a", "pod", filesystem(fsType), false))
			stats, err := f.engine.Stats(t.Context(), "vol-a", f.target("vol-a", "pod"), "")
			if err != nil || stats.Bytes.Total < size+size/2 {
				t.Errorf("%+v, %v; want nearly %d", stats, err, 2*size)
			}
			f.wantContent(filepath.Join(f.target("vol-a", "pod"), "file"), "kept")
			if fs.CanGrowMounted(fsType) && f.runner.runs.Load() != 1 {
				t.Errorf("%d programs; want mkfs alone", f.runner.runs.Load())
			}
			before := f.runner.runs.Load()
			f.must(f.unpublish("vol-a", "pod"))
			f.must(f.unstage("vol-a"))
			f.must(f.stage("vol-a", filesystem(fsType)))
			if f.runner.runs.Load() != before {
				t.Error("a filesystem of full size was grown again")
			}
		})
	}
}

func TestStage_mountsACloneTogetherWithItsSource(t *testing.T) {
	for fsType, size := range sizes {
		t.Run(fsType, func(t *testing.T) {
			f := newFixture(t)
			f.backend.add(t, "vol-a", size)
			f.cleanUp("vol-a")
			f.cleanUp("vol-b")
			f.must(f.stage("vol-a", filesystem(fsType)))
			f.write(filepath.Join(f.stagingDir("vol-a"), "file"), "first")
			f.must(f.unstage("vol-a"))
			f.mkdir(filepath.Dir(f.backend.path("vol-b")))
			f.run("cp", "--sparse=always", f.backend.path("vol-a"), f.backend.path("vol-b"))
			f.must(f.stage("vol-a", filesystem(fsType)))
			f.must(f.stage("vol-b", filesystem(fsType)))
			f.wantContent(filepath.Join(f.stagingDir("vol-b"), "file"), "first")
			f.write(filepath.Join(f.stagingDir("vol-b"), "file"), "second")
			f.wantContent(filepath.Join(f.stagingDir("vol-a"), "file"), "first")
			f.must(f.unstage("vol-a"))
			f.wantContent(filepath.Join(f.stagingDir("vol-b"), "file"), "second")
		})
	}
}

// option reads an option of the topmost mount at a path.
func (f *fixture) options(path string) (own, super string) {
	f.t.Helper()
	table, err := mount.Table()
	f.must(err)
	for _, m := range table {
		if m.Mountpoint == path {
			own, super = m.Options, m.VFSOptions
		}
	}
	return own, super
}

func TestStage_passesMountFlags(t *testing.T) {
	for _, c := range []struct {
		fsType     string
		flags      []string
		own, super []string
	}{
		{"ext4", nil, []string{"rw", "relatime"}, []string{"discard"}},
		{"ext4", []string{"noatime,nosuid", "nodev", "noexec", "nodiscard", "data=journal", "defaults"}, []string{"noatime", "nosuid", "nodev", "noexec"}, []string{"data=journal"}},
		{"ext4", []string{"sync", "errors=remount-ro"}, nil, []string{"sync", "errors=remount-ro"}},
		{"xfs", []string{"nodiratime", "logbsize=64k"}, []string{"nodiratime"}, []string{"nouuid", "discard", "logbsize=64k"}},
		{"btrfs", []string{"compress=zstd:3"}, []string{"relatime"}, []string{"compress=zstd:3", "discard=async"}},
		{"ext4", []string{"ro"}, []string{"ro"}, []string{"ro"}},
	} {
		t.Run(c.fsType+" "+strings.Join(c.flags, " "), func(t *testing.T) {
			f := newFixture(t)
			f.backend.add(t, "vol-a", sizes[c.fsType])
			f.cleanUp("vol-a", "pod")
			f.must(f.stage("vol-a", filesystem(c.fsType, c.flags...)))
			f.must(f.publish("vol-a", "pod", filesystem(c.fsType, c.flags...), false))
			for _, path := range []string{f.stagingDir("vol-a"), f.target("vol-a", "pod")} {
				own, super := f.options(path)
				for _, option := range c.own {
					if !mount.HasOption(own, option) {
						t.Errorf("%s has %q; want %s", path, own, option)
					}
				}
				for _, option := range c.super {
					if !mount.HasOption(super, option) {
						t.Errorf("%s has %q; want %s", path, super, option)
					}
				}
			}
		})
	}
}

func TestStage_doesNotDiscardOnAThickDevice(t *testing.T) {
	for fsType, size := range sizes {
		f := newFixture(t)
		f.backend.discard = false
		f.backend.add(t, "vol-a", size)
		f.cleanUp("vol-a")
		f.must(f.stage("vol-a", filesystem(fsType)))
		if _, super := f.options(f.stagingDir("vol-a")); strings.Contains(strings.ReplaceAll(super, "nodiscard", ""), "discard") {
			t.Errorf("%s is mounted with %q", fsType, super)
		}
	}
}

func TestStage_refusesBadMountFlags(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol-a", sizes["ext4"])
	f.cleanUp("vol-a")
	for flag, says := range map[string]string{
		"no_such_option": "no_such_option", "data=sideways": "data=sideways", "remount": "remount", "bind": "bind",
		"ro,rw": "contradict", "loop=/dev/loop7": "loop", "journal_path=/dev/sda": "another device",
		"errors=panic": "machine down", `errors="panic"`: "machine down", "rw=1": "no value", "noatime,relatime": "contradict", "": "empty", "x\ny": "control character",
	} {
		err := f.stage("vol-a", filesystem("ext4", flag))
		f.wantError(err, backend.ErrInvalid)
		if !strings.Contains(err.Error(), says) {
			t.Errorf("flag %q: error %q; want %q", flag, err, says)
		}
		nodetest.NoLeaks(t, f.dir)
	}
	f.wantError(f.stage("vol-a", filesystem("ntfs")), backend.ErrInvalid)
	f.wantError(f.stage("vol-a", backend.Capability{Block: true, FSType: "ext4"}), backend.ErrInvalid)
	f.wantError(f.stage("vol-a", backend.Capability{MountGroup: "1000"}), backend.ErrInvalid)
}

// Without a mount option, the superblock sets the reaction to an error; a pod
// that had the volume as raw block may have written "panic" there.
func TestStage_superblockCannotAskForAPanic(t *testing.T) {
	for _, set := range [][]string{{"-e", "panic"}, {"-E", "mount_opts=errors=panic"}} {
		for _, c := range []struct{ flag, want string }{{"", "errors=remount-ro"}, {"errors=continue", "errors=continue"}} {
			t.Run(strings.Join(set, " ")+" "+c.flag, func(t *testing.T) {
				f := newFixture(t)
				f.backend.add(t, "vol-a", sizes["ext4"])
				f.cleanUp("vol-a")
				f.run("mke2fs", "-q", "-F", "-t", "ext4", f.backend.path("vol-a"))
				f.run("tune2fs", append(set, f.backend.path("vol-a"))...)
				var flags []string
				if c.flag != "" {
					flags = []string{c.flag}
				}
				f.must(f.stage("vol-a", filesystem("ext4", flags...)))
				// The kernel shows the behaviour where it is not the superblock's.
				_, super := f.options(f.stagingDir("vol-a"))
				if set[0] == "-e" && !mount.HasOption(super, c.want) || mount.HasOption(super, "errors=panic") {
					t.Errorf("mounted with %q; want %s", super, c.want)
				}
			})
		}
	}
}

func TestStage_namesTheForeignMountInItsWay(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol-a", sizes["ext4"])
	path := f.stagingDir("vol-a")
	f.must(unix.Mount("another", path, "tmpfs", 0, "size=64k"))
	t.Cleanup(func() { _ = unix.Unmount(path, 0) })
	for _, c := range []backend.Capability{filesystem("ext4"), block()} {
		err := f.stage("vol-a", c)
		f.wantError(err, backend.ErrPrecondition)
		if !strings.Contains(err.Error(), "tmpfs of another") {
			t.Errorf("error %q", err)
		}
	}
	f.wantError(f.unstage("vol-a"), backend.ErrPrecondition)
	if err := f.engine.Unstage(t.Context(), "vol-x", path); !errors.Is(err, backend.ErrPrecondition) {
		t.Errorf("an unknown volume's unstage: %v", err)
	}
	if len(nodetest.MountsBelow(t, path)) != 1 {
		t.Error("the foreign mount is gone")
	}
}

func TestUnstage_undoesStackedMounts(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol-a", sizes["ext4"])
	f.must(f.stage("vol-a", filesystem("ext4")))
	path := f.stagingDir("vol-a")
	f.must(unix.Mount(path, path, "", unix.MS_BIND, ""))
	f.must(unix.Mount(path, path, "", unix.MS_BIND, ""))
	f.must(f.unstage("vol-a"))
	nodetest.NoLeaks(t, f.dir)
}

func TestUnstage_refusesWhilePublished(t *testing.T) {
	for name, c := range map[string]backend.Capability{"filesystem": filesystem("ext4"), "block": block()} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.backend.add(t, "vol-a", sizes["ext4"])
			f.cleanUp("vol-a", "pod")
			f.must(f.stage("vol-a", c))
			f.must(f.publish("vol-a", "pod", c, false))
			err := f.unstage("vol-a")
			f.wantError(err, backend.ErrInUse)
			if !strings.Contains(err.Error(), f.target("vol-a", "pod")) {
				t.Errorf("error %q does not name the target", err)
			}
			f.must(f.stage("vol-a", c))
			f.must(f.unpublish("vol-a", "pod"))
			f.must(f.unstage("vol-a"))
		})
	}
}

func TestUnstage_inUseByAProcess(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol-a", sizes["ext4"])
	f.cleanUp("vol-a")
	f.must(f.stage("vol-a", filesystem("ext4")))
	file, err := os.Create(filepath.Join(f.stagingDir("vol-a"), "file"))
	f.must(err)
	f.wantError(f.unstage("vol-a"), backend.ErrInUse)
	f.must(file.Close())
	f.must(f.unstage("vol-a"))
}

func TestUnstage_missingDirectoryIsDone(t *testing.T) {
	f := newFixture(t)
	f.backend.add(t, "vol-a", sizes["ext4"])
	f.must(f.engine.Unstage(t.Context(), "vol-a", filepath.Join(f.kubelet, "no", "such", "directory")))
}

// Data of no known kind, anywhere on a volume: written data is never formatted, and a
// blank volume is.
func TestStage_randomDataIsNeverFormatted(t *testing.T) {
	f := newFixture(t)
	rapid.Check(t, func(rt *rapid.T) {
		const size = 256 * mebibyte
		f.backend.add(t, "vol-a", size)
		f.must(f.backend.SetFormatMark(t.Context(), "vol-a", backend.FormatMark{}))
		file, err := os.OpenFile(f.backend.path("vol-a"), os.O_RDWR, 0)
		f.must(err)
		for range rapid.IntRange(0, 3).Draw(rt, "zeros") { // written, and still blank
			_, err := file.WriteAt(make([]byte, 8192), rapid.Int64Range(0, size-8192).Draw(rt, "zeros at"))
			f.must(err)
		}
		data := rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(rt, "data")
		_, err = file.WriteAt(data, rapid.Int64Range(0, size-64).Draw(rt, "data at"))
		f.must(errors.Join(err, file.Close()))
		blank := len(bytes.Trim(data, "\x00")) == 0

		runner := &mkfsCounter{}
		f.engine = newEngine(t, Options{Backend: f.backend, KubeletDir: f.kubelet, Runner: runner, Traits: backend.Traits{Filesystems: []string{"ext4"}}})
		err = f.stage("vol-a", filesystem("ext4"))
		if (runner.made > 0) != blank || err == nil {
			rt.Fatalf("mkfs was started %d times, blank = %t: %v", runner.made, blank, err)
		}
		f.must(os.Remove(f.backend.path("vol-a")))
	})
}

// A truncated backing file has real read errors behind its end.
func TestStage_unreadableDeviceIsNotFormatted(t *testing.T) {
	f := newFixture(t)
	for _, left := range []int64{0, 4096, mebibyte, 32 * mebibyte} {
		for _, forgetful := range []bool{false, true} {
			f.backend.forgetful = forgetful
			f.backend.add(t, "vol-a", 64*mebibyte)
			device, err := f.backend.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: "vol-a"})
			f.must(err)
			f.must(os.Truncate(f.backend.path("vol-a"), left))
			err = f.stage("vol-a", filesystem("ext4"))
			f.wantError(err, backend.ErrUnavailable)
			f.must(device.Release())
			f.must(os.Remove(f.backend.path("vol-a")))
		}
	}
	if f.runner.runs.Load() != 0 {
		t.Errorf("%d programs were run", f.runner.runs.Load())
	}
}
