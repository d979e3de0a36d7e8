package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/command"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

// killer kills resize2fs at its nth write.
type killer struct {
	command.Runner
	write int
}

func (k killer) Run(ctx context.Context, c command.Command) (command.Result, error) {
	if c.Name == "resize2fs" {
		c.Args = append([]string{"-qq", "-o", "/dev/null", "-e", fmt.Sprintf("inject=write,pwrite64:signal=KILL:when=%d",
			k.write), c.Name}, c.Args...)
		c.Name = "strace"
	}
	return k.Runner.Run(ctx, c)
}

// A stage whose caller gives up, or whose driver is killed, kills resize2fs.
// Some of its first writes are those of the superblock, one field each.
func TestGrowOffline_killedAtAnyWrite(t *testing.T) {
	for _, write := range []int{1, 2, 3, 4, 5, 9, 40, 160, 259, 270} {
		t.Run(fmt.Sprint(write), func(t *testing.T) {
			f := newFixture(t)
			const id = "vol-a"
			f.backend.add(t, id, 64*mebibyte)
			f.cleanUp(id, "pod")
			f.must(f.stage(id, filesystem("ext4")))
			file := filepath.Join(f.stagingDir(id), "file")
			f.write(file, "kept")
			f.must(f.unstage(id))
			f.must(os.Truncate(f.backend.path(id), 128*mebibyte))

			if err := f.growKilled(id, write); err == nil {
				t.Fatalf("resize2fs has fewer than %d writes", write)
			}
			if !f.backend.mark(t, id).Resizing {
				t.Fatal("no mark of the interrupted growth")
			}
			f.must(f.stage(id, filesystem("ext4")))
			f.wantContent(file, "kept")
			if mark := f.backend.mark(t, id); mark != (backend.FormatMark{FSType: "ext4", Done: true}) {
				t.Errorf("mark %+v", mark)
			}
			f.must(f.unstage(id))
			f.run("e2fsck", "-f", "-n", f.backend.path(id))
			nodetest.NoLeaks(t, f.dir)
		})
	}
}

// growKilled grows a volume's filesystem with a resize2fs that is killed at a
// write, and returns nil if it has fewer.
func (f *fixture) growKilled(id string, write int) error {
	f.t.Helper()
	device, err := f.backend.OpenDevice(f.t.Context(), backend.DeviceRequest{VolumeID: id})
	f.must(err)
	defer func() { f.must(device.Release()) }()
	engine := newEngine(f.t, Options{Backend: f.backend, KubeletDir: f.kubelet, Forbidden: []string{f.backend.dir},
		Runner: killer{Runner: command.NewSystem(), write: write},
		Traits: backend.Traits{Filesystems: []string{"ext4"}}})
	return engine.growOffline(f.t.Context(), preparation{volumeID: id, device: device, point: "node/stage"}, "ext4")
}

func TestStage_ofAHalfWrittenSuperblock(t *testing.T) {
	f := newFixture(t)
	const id = "vol-a"
	f.backend.add(t, id, 64*mebibyte)
	f.cleanUp(id, "pod")
	f.must(f.stage(id, filesystem("ext4")))
	f.must(f.unstage(id))
	f.patch(id, 1024+0x3a, "\x03") // s_state without s_checksum

	device, err := f.backend.OpenDevice(t.Context(), backend.DeviceRequest{VolumeID: id, Keep: true})
	f.must(err)
	writer, err := os.OpenFile(device.Path, os.O_RDWR|unix.O_EXCL, 0)
	f.must(err)
	f.wantError(f.stage(id, filesystem("ext4")), backend.ErrBusy)
	f.must(writer.Close())
	f.wantError(f.stage(id, filesystem("ext4")), backend.ErrDataLoss)
	f.must(device.Release())

	t.Log("after a resize2fs that was killed in this boot the same is repaired")
	f.must(f.backend.SetFormatMark(t.Context(), id, backend.FormatMark{FSType: "ext4", Done: true, Resizing: true}))
	f.wantError(f.stage(id, filesystem("xfs")), backend.ErrDataLoss)
	f.must(f.stage(id, filesystem("ext4")))
	f.must(f.unstage(id))
}

func TestStage_asABlockDeviceForgetsAnInterruptedGrowth(t *testing.T) {
	f := newFixture(t)
	const id = "vol-a"
	f.backend.add(t, id, 64*mebibyte)
	f.cleanUp(id, "pod")
	f.must(f.backend.SetFormatMark(t.Context(), id, backend.FormatMark{FSType: "ext4", Done: true, Resizing: true}))
	f.must(f.stage(id, block()))
	f.must(f.unstage(id))
	if mark := f.backend.mark(t, id); mark != (backend.FormatMark{FSType: "ext4", Done: true}) {
		t.Errorf("mark %+v", mark)
	}
}
