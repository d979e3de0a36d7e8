package local

import (
	"context"
	"os"

	"github.com/holdfast-csi/holdfast/internal/progress"
)

// allocateEvery is the length of one allocation, by default. It is large, so that extents
// stay long, and takes less than a second on disks, so that progress is seen and the end of
// the context is obeyed.
const allocateEvery = gibibyte

// reserve allocates the missing blocks of the first size bytes. The file's size stays: it
// changes in one step, later, or not at all. Blocks that were allocated before an error
// stay; the caller frees them. (A single call of fallocate(2) that fails keeps them, too.)
func (p *Pool) reserve(ctx context.Context, f *os.File, size int64) error {
	task := progress.Begin(ctx, "allocating", size)
	defer task.End()
	for at := int64(0); at < size; at += p.allocateEvery {
		if err := ctx.Err(); err != nil {
			return err
		}
		length := min(p.allocateEvery, size-at)
		if err := allocate(f, at, length); err != nil {
			return err
		}
		task.Add(length)
		if err := p.points.Hit("local/allocate/chunk"); err != nil {
			return err
		}
	}
	return nil
}
