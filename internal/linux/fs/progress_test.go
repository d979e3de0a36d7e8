package fs

import (
	"context"
	"slices"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/command"
	"github.com/holdfast-csi/holdfast/internal/progress"
)

// looking is a runner that notes which tasks run with its program.
type looking struct {
	tracker *progress.Tracker
	seen    []string
}

func (l *looking) Run(_ context.Context, c command.Command) (command.Result, error) {
	for _, one := range l.tracker.List() {
		l.seen = append(l.seen, c.Name+": "+one.Doing)
	}
	return command.Result{}, nil
}

// Programs do not say how far they are, but that they run.
func TestPrograms_areReported(t *testing.T) {
	runner := &looking{tracker: &progress.Tracker{}}
	ctx := runner.tracker.For(t.Context(), "NodeStageVolume", "one")
	device := backend.Device{Path: "/dev/none", Size: 1 << 30, SectorSize: 4096}
	for _, err := range []error{
		Make(ctx, runner, Ext4, device, ""), Check(ctx, runner, XFS, device.Path),
		VerifyOffline(ctx, runner, Ext4, device.Path), GrowOffline(ctx, runner, Ext4, device.Path),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	want := []string{
		"mkfs.ext4: formatting ext4", "xfs_repair: checking xfs", "e2fsck: growing ext4 with e2fsck", "resize2fs: growing ext4 with resize2fs",
	}
	if !slices.Equal(runner.seen, want) {
		t.Errorf("seen were %q, want %q", runner.seen, want)
	}
	if left := runner.tracker.List(); len(left) != 0 {
		t.Errorf("left are %+v", left)
	}
}
