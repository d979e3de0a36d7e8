package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/progress"
)

const (
	copyChunk    = 8 * mebibyte   // between two checks of the context
	saveEvery    = 256 * mebibyte // between two records of progress, by default
	reportEvery  = 3 * time.Second
	rewriteChunk = mebibyte
)

// copyIdle copies a source that cannot change while it is locked. An interrupted copy
// continues if the source has not changed since.
func (p *Pool) copyIdle(ctx context.Context, c fileCopy) error {
	if err := c.source.data.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", c.source.id, err)
	}
	now, err := fingerprintOf(c.source.data)
	if err != nil {
		return err
	}
	state := copyState{Source: now}
	if c.begun != nil && c.begun.Source == now {
		state.Offset = c.begun.Offset
	} else if err := c.target.Truncate(0); err != nil {
		return err
	}
	return p.copyFrom(ctx, c, state)
}

// copyWhole copies a frozen source, from the beginning.
func (p *Pool) copyWhole(ctx context.Context, c fileCopy) error {
	if err := c.target.Truncate(0); err != nil {
		return err
	}
	c.save = nil
	return p.copyFrom(ctx, c, copyState{})
}

func (p *Pool) copyFrom(ctx context.Context, c fileCopy, state copyState) error {
	size := c.source.size
	// An interrupted copy may have written behind the recorded offset; the
	// same bytes are written there again, and a hole of the source was never written.
	if err := c.target.Truncate(size); err != nil {
		return err
	}
	report, err := p.reporter(ctx, c, state.Offset)
	if err != nil {
		return err
	}
	defer report.task.End()
	saved := state.Offset
	chunk := min(copyChunk, p.saveEvery)
	return copySparse(ctx, c.target, c.source.data, state.Offset, size, chunk, func(done, copied int64) error {
		report.add(copied)
		if c.save == nil || done-saved < p.saveEvery {
			return p.points.Hit("local/copy/chunk")
		}
		saved, state.Offset = done, done
		if err := c.target.Sync(); err != nil {
			return err
		}
		if err := c.save(state); err != nil {
			return err
		}
		return p.points.Hit("local/copy/saved")
	})
}

// copySparse copies the data of source from an offset on and leaves its holes
// (lseek(2), SEEK_DATA). step is called after each chunk with how far everything is
// copied, and with the size of the chunk.
func copySparse(
	ctx context.Context, target, source *os.File, from, size, chunk int64, step func(done, copied int64) error,
) error {
	for from < size {
		begin, end, err := nextData(source, from, size)
		if err != nil {
			return err
		}
		for begin < end {
			if err := ctx.Err(); err != nil {
				return err
			}
			length := min(chunk, end-begin)
			if err := copyRange(target, source, begin, length); err != nil {
				return err
			}
			begin += length
			if err := step(begin, length); err != nil {
				return err
			}
		}
		from = end
	}
	return nil
}

// nextData finds the next range with data at or behind an offset; an empty
// range at size when there is none.
func nextData(f *os.File, from, size int64) (begin, end int64, err error) {
	begin, err = f.Seek(from, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) || (err == nil && begin >= size) {
		return size, size, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("find data of %s: %w", f.Name(), err)
	}
	end, err = f.Seek(begin, unix.SEEK_HOLE)
	if err != nil {
		return 0, 0, fmt.Errorf("find the end of data of %s: %w", f.Name(), err)
	}
	return begin, min(end, size), nil
}

// copyRange copies inside the kernel, or by reading and writing where the
// filesystems do not support that.
func copyRange(target, source *os.File, offset, length int64) error {
	in, out := offset, offset
	for in < offset+length {
		n, err := unix.CopyFileRange(descriptor(source), &in, descriptor(target), &out, int(offset+length-in), 0)
		if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) ||
			errors.Is(err, unix.EINVAL) {
			return copyThrough(target, source, in, offset+length-in)
		}
		if err != nil {
			return fmt.Errorf("copy %s to %s: %w", source.Name(), target.Name(), err)
		}
		if n == 0 {
			return fmt.Errorf("copy %s to %s: it ends at %d: %w", source.Name(), target.Name(), in, io.ErrUnexpectedEOF)
		}
	}
	return nil
}

func copyThrough(target, source *os.File, offset, length int64) error {
	_, err := io.Copy(io.NewOffsetWriter(target, offset), io.NewSectionReader(source, offset, length))
	if err != nil {
		return fmt.Errorf("copy %s to %s: %w", source.Name(), target.Name(), err)
	}
	return nil
}

// report logs and publishes how far a copy is, in bytes of data: holes are not copied.
type report struct {
	pool        *Pool
	id          string // of the new entry
	done, total int64
	last, began time.Time
	task        *progress.Task
}

// reporter begins the report of a copy that continues at an offset.
func (p *Pool) reporter(ctx context.Context, c fileCopy, from int64) (*report, error) {
	done, total, err := dataOf(c, from)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	r := &report{pool: p, id: idOfData(c.target), done: done, total: total, last: now, began: now,
		task: progress.Begin(ctx, "copying", total)}
	r.task.Set(done)
	return r, nil
}

// dataOf returns how many bytes of a source are data, and how many of these are before
// an offset. The blocks of a frozen source are only counted: it is not to wait for more.
func dataOf(c fileCopy, from int64) (before, all int64, err error) {
	if len(c.users.mounts) > 0 {
		blocks, err := allocated(c.source.data)
		return 0, min(blocks, c.source.size), err
	}
	for at := int64(0); at < c.source.size; {
		begin, end, err := nextData(c.source.data, at, c.source.size)
		if err != nil {
			return 0, 0, err
		}
		before += max(0, min(end, from)-begin)
		all += end - begin
		at = end
	}
	return before, all, nil
}

func (r *report) add(copied int64) {
	r.done += copied
	r.task.Set(r.done)
	if time.Since(r.last) < reportEvery {
		return
	}
	r.last = time.Now()
	r.pool.log.Info("copying", "for", r.id, "done", r.done, "total", r.total,
		"seconds", int(time.Since(r.began).Seconds()))
}
