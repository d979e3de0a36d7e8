package blockdev

import (
	"io"
	"slices"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/progress"
	"github.com/holdfast-csi/holdfast/internal/sample"
)

// watchedZeros is a blank device that looks at the tasks at each read.
type watchedZeros struct{ look func() }

func (z watchedZeros) ReadAt(p []byte, _ int64) (int, error) {
	z.look()
	clear(p)
	return len(p), nil
}

var _ io.ReaderAt = watchedZeros{}

// Reading everything that was written can take long, and says how far it is.
func TestProbe_reportsItsProgress(t *testing.T) {
	const size = 64 * mebi
	var tracker progress.Tracker
	var done, totals []int64
	device := watchedZeros{look: func() {
		for _, one := range tracker.List() {
			done, totals = append(done, one.Done), append(totals, one.Total)
		}
	}}
	written := func(visit func(offset, length int64) error) error { return visit(32*mebi, 4*mebi) }
	ctx := tracker.For(t.Context(), "NodeStageVolume", "one")
	content, err := Probe(ctx, device, size, written)
	if err != nil || content.Kind != Blank {
		t.Fatalf("%+v, %v", content, err)
	}
	if want := []int64{32 * mebi, 33 * mebi, 34 * mebi, 35 * mebi}; !slices.Equal(done, want) || slices.Max(totals) != size {
		t.Errorf("done were %d of %d, want %d of %d", done, totals, want, int64(size))
	}

	totals = nil
	serial := tracker.For(t.Context(), "NodeStageVolume", "two")
	if content, err = Probe(serial, watchedZeros{look: func() {}}, size, nil); err != nil || content.Kind != Blank {
		t.Fatalf("%+v, %v", content, err)
	}
	if left := tracker.List(); len(left) != 0 || len(sample.Offsets(size)) == 0 {
		t.Errorf("after the probe, %+v runs", left)
	}
}
