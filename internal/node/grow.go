package node

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
	"github.com/holdfast-csi/holdfast/internal/linux/fs"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
	"github.com/holdfast-csi/holdfast/internal/progress"
	"github.com/holdfast-csi/holdfast/internal/step"
)

// fill grows a mounted filesystem that is smaller than its device, as after a
// restore into a larger volume, or an expansion while it was not mounted.
func (e *Engine) fill(ctx context.Context, tree *mount.Tree, content blockdev.Content, p preparation) error {
	if err := e.points.Hit(p.point + "/mounted"); err != nil {
		return err
	}
	if p.flags.ReadOnly() || !fs.WorthGrowing(content.Type, content.Size, p.device.Size) ||
		!fs.CanGrowMounted(content.Type) {
		return nil
	}
	dir, err := tree.OpenDir()
	if err != nil {
		return err
	}
	err = growMounted(ctx, dir, content.Type, p.device.Size)
	if err := errors.Join(err, dir.Close()); err != nil {
		return err
	}
	return e.points.Hit(p.point + "/grown")
}

// growMounted grows the filesystem that a directory is on.
func growMounted(ctx context.Context, dir *os.File, fsType string, size int64) error {
	total := int64(0)
	if now, err := fs.Size(dir, fsType); err == nil {
		total = max(size-now, 0)
	}
	task := progress.Begin(ctx, "growing "+fsType, total)
	defer task.End()
	defer followGrowth(task, growthEvery, func() (int64, error) { return fs.UsableSize(dir) })()
	_, end := step.Begin(ctx, "grow")
	err := fs.Grow(dir, fsType, size)
	end(err)
	return err
}

// growthEvery is the time between two readings of the size of a filesystem that grows.
const growthEvery = 250 * time.Millisecond

// followGrowth reports how many bytes a filesystem has gained, until stop. The kernel's
// call says nothing before it ends, but ext4 adds groups of blocks one after the other,
// which its size shows at once.
func followGrowth(task *progress.Task, every time.Duration, size func() (int64, error)) (stop func()) {
	if task == nil {
		return func() {}
	}
	before, err := size()
	if err != nil {
		return func() {}
	}
	ended := make(chan struct{})
	var following sync.WaitGroup
	following.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
			if now, err := size(); err == nil {
				task.Set(max(now-before, 0))
			}
		}
	})
	return func() {
		close(ended)
		following.Wait()
	}
}

// fillOffline does the same before the mount if the kernel does not let this
// process grow a mounted filesystem.
func (e *Engine) fillOffline(ctx context.Context, p preparation, content blockdev.Content) (blockdev.Content, error) {
	if p.flags.ReadOnly() || !fs.WorthGrowing(content.Type, content.Size, p.device.Size) ||
		fs.CanGrowMounted(content.Type) {
		return content, nil
	}
	if mounts, err := mountsOf([]backend.Device{*p.device}); err != nil || len(mounts) > 0 {
		return content, err // mounted elsewhere, it grows another time
	}
	if err := e.growOffline(ctx, p, content.Type); err != nil {
		return content, err
	}
	return e.probeDevice(ctx, p)
}

// growOffline runs resize2fs between two marks: if it is killed, the next
// prepare repairs the filesystem.
func (e *Engine) growOffline(ctx context.Context, p preparation, fsType string) (err error) {
	ctx, end := step.Begin(ctx, "grow")
	defer func() { end(err) }()
	if err := fs.VerifyOffline(ctx, e.runner, fsType, p.device.Path); err != nil {
		return err
	}
	if err := e.markResizing(ctx, p, true); err != nil {
		return err
	}
	if err := e.points.Hit(p.point + "/resizing"); err != nil {
		return err
	}
	if err := fs.GrowOffline(ctx, e.runner, fsType, p.device.Path); err != nil {
		return err
	}
	if err := e.points.Hit(p.point + "/resized"); err != nil {
		return err
	}
	if err := e.markResizing(ctx, p, false); err != nil {
		return err
	}
	return e.points.Hit(p.point + "/grown")
}

// repairGrowth completes an interrupted resize2fs.
func (e *Engine) repairGrowth(
	ctx context.Context, p preparation, before blockdev.Content,
) (after blockdev.Content, err error) {
	ctx, end := step.Begin(ctx, "repair")
	defer func() { end(err) }()
	if p.device.ReadOnly {
		return before, errReadOnlyRepair(p, before.Type)
	}
	e.log.Warn("repairing a filesystem whose growth was interrupted",
		"volume", p.volumeID, "device", p.device.Path, "type", before.Type)
	if err := fs.RepairOffline(ctx, e.runner, before.Type, p.device.Path); err != nil {
		return before, err
	}
	if after, err = e.probeRepaired(ctx, p, before.Type); err != nil {
		return after, err
	}
	if err := e.markResizing(ctx, p, false); err != nil {
		return after, err
	}
	return after, e.points.Hit(p.point + "/repaired")
}

func (e *Engine) markResizing(ctx context.Context, p preparation, resizing bool) error {
	mark, err := e.formatMark(ctx, p.volumeID)
	if err != nil || mark.Resizing == resizing {
		return err
	}
	mark.Resizing = resizing
	return e.setFormatMark(ctx, p.volumeID, mark)
}
