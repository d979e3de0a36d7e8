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
//
// The call is made for ranges without blocks only: xfs requires room for the whole range of
// a call, blocks that are there included.
func (p *Pool) reserve(ctx context.Context, f *os.File, size int64) error {
	missing, err := missingExtents(f, size)
	if err != nil {
		return err
	}
	total := int64(0)
	for _, e := range missing {
		total += e.length
	}
	task := progress.Begin(ctx, "allocating", total)
	defer task.End()
	for _, e := range missing {
		if err := p.reserveRange(ctx, f, e, task); err != nil {
			return err
		}
	}
	return nil
}

func (p *Pool) reserveRange(ctx context.Context, f *os.File, e extent, task *progress.Task) error {
	for end := e.offset + e.length; e.offset < end; e.offset += p.allocateEvery {
		if err := ctx.Err(); err != nil {
			return err
		}
		length := min(p.allocateEvery, end-e.offset)
		if err := allocate(f, e.offset, length); err != nil {
			return err
		}
		task.Add(length)
		if err := p.points.Hit("local/allocate/chunk"); err != nil {
			return err
		}
	}
	return nil
}
