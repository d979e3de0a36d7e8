package node

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/progress"
)

// What a filesystem has gained is reported while it grows, and never a loss.
func TestFollowGrowth_reportsWhatWasGained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const mib = 1 << 20
		var tracker progress.Tracker
		task := progress.Begin(tracker.For(t.Context(), "NodeExpandVolume", "id"), "growing ext4", 300*mib)
		sizes := []int64{100 * mib, 150 * mib, 90 * mib, -1, 390 * mib}
		stop := followGrowth(task, time.Second, func() (int64, error) {
			now := sizes[0]
			sizes = sizes[1:]
			if now < 0 {
				return 0, errors.New("statfs failed")
			}
			return now, nil
		})
		for i, want := range []int64{0, 50 * mib, 0, 0, 290 * mib} {
			if got := tracker.List()[0]; got.Done != want || got.Total != 300*mib {
				t.Errorf("after %d readings: %+v, want %d done", i, got, want)
			}
			if i < 4 {
				time.Sleep(time.Second)
				synctest.Wait()
			}
		}
		stop()
		task.End()
	})
}

func TestFollowGrowth_needsATaskAndASize(t *testing.T) {
	followGrowth(nil, time.Second, func() (int64, error) { return 1, nil })()
	var tracker progress.Tracker
	task := progress.Begin(tracker.For(t.Context(), "c", "o"), "growing ext4", 0)
	followGrowth(task, time.Second, func() (int64, error) { return 0, errors.New("statfs failed") })()
	task.End()
}
