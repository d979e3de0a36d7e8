package local

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/progress"
)

func idOfData(data *os.File) string { return filepath.Base(filepath.Dir(data.Name())) }

// unshare copies every block that a file shares to a new one, so that neither it nor
// the other file needs new blocks when written to. A retry copies only the blocks that
// are still shared.
func (p *Pool) unshare(ctx context.Context, f *os.File, size int64) error {
	if !p.reflink.Load() {
		return nil
	}
	shared, err := sharedExtents(f)
	if err != nil {
		return err
	}
	total := int64(0)
	for _, e := range shared {
		total += e.length
	}
	task := progress.Begin(ctx, "copying shared blocks", total)
	defer task.End()
	for _, e := range shared {
		for at := e.offset; at < min(e.offset+e.length, size); at += copyChunk {
			if err := ctx.Err(); err != nil {
				return err
			}
			length := min(copyChunk, e.offset+e.length-at, size-at)
			if err := unshareRange(f, at, length); err != nil {
				return err
			}
			task.Add(length)
			if err := p.points.Hit("local/unshare/chunk"); err != nil {
				return err
			}
		}
	}
	return nil
}

// unshareRange asks the filesystem (xfs), or writes the same bytes again, which
// makes any filesystem allocate (btrfs). No other process may write then.
func unshareRange(f *os.File, offset, length int64) error {
	err := unix.Fallocate(descriptor(f), unix.FALLOC_FL_UNSHARE_RANGE|unix.FALLOC_FL_KEEP_SIZE, offset, length)
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("unshare %s: %w", f.Name(), err)
	}
	buffer := make([]byte, rewriteChunk)
	for end := offset + length; offset < end; {
		part := buffer[:min(rewriteChunk, end-offset)]
		if _, err := f.ReadAt(part, offset); err != nil {
			return fmt.Errorf("unshare %s: %w", f.Name(), err)
		}
		if _, err := f.WriteAt(part, offset); err != nil {
			return fmt.Errorf("unshare %s: %w", f.Name(), err)
		}
		offset += int64(len(part))
	}
	return nil
}

type extent struct{ offset, length int64 }

// The layout of struct fiemap and struct fiemap_extent, and the flags
// (linux/fiemap.h; Documentation/filesystems/fiemap.rst).
const (
	fsIocFiemap       = 0xc020660b // _IOWR('f', 11, struct fiemap)
	fiemapHeader      = 32
	fiemapExtent      = 56
	fiemapExtents     = 512 // asked for at a time
	fiemapFlagSync    = 0x1
	fiemapLast        = 0x1
	fiemapExtentShare = 0x2000
)

// sharedExtents lists the parts of a file whose blocks other files have too.
func sharedExtents(f *os.File) ([]extent, error) {
	var shared []extent
	err := visitExtents(f, func(e extent, flags uint32) {
		if flags&fiemapExtentShare != 0 {
			shared = append(shared, e)
		}
	})
	return shared, err
}

// missingExtents lists the parts of the first size bytes of a file that have no blocks: all
// of it where the filesystem does not say which.
func missingExtents(f *os.File, size int64) ([]extent, error) {
	var missing []extent
	end := int64(0) // of what was seen
	err := visitExtents(f, func(e extent, _ uint32) {
		if hole := min(e.offset, size) - end; hole > 0 {
			missing = append(missing, extent{end, hole})
		}
		end = max(end, e.offset+e.length)
	})
	if errors.Is(err, unix.EOPNOTSUPP) {
		return []extent{{0, size}}, nil
	}
	if end < size {
		missing = append(missing, extent{end, size - end})
	}
	return missing, err
}

// visitExtents calls visit for each part of a file that has blocks, in order. Those that
// fallocate(2) gave and nothing was written to are among them.
func visitExtents(f *os.File, visit func(e extent, flags uint32)) error {
	buffer := make([]byte, fiemapHeader+fiemapExtents*fiemapExtent)
	for start := uint64(0); ; {
		count, err := fiemap(f, buffer, start)
		if err != nil || count == 0 {
			return err
		}
		for i := range count {
			e := buffer[fiemapHeader+i*fiemapExtent:]
			logical, length := binary.NativeEndian.Uint64(e), binary.NativeEndian.Uint64(e[16:])
			flags := binary.NativeEndian.Uint32(e[40:])
			visit(extent{int64(logical), int64(length)}, flags)
			if flags&fiemapLast != 0 {
				return nil
			}
			start = logical + length
		}
	}
}

func fiemap(f *os.File, buffer []byte, start uint64) (int, error) {
	clear(buffer[:fiemapHeader])
	binary.NativeEndian.PutUint64(buffer, start)
	binary.NativeEndian.PutUint64(buffer[8:], ^uint64(0)-start)
	binary.NativeEndian.PutUint32(buffer[16:], fiemapFlagSync)
	binary.NativeEndian.PutUint32(buffer[24:], fiemapExtents)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsIocFiemap, uintptr(unsafe.Pointer(&buffer[0])))
	if errno != 0 {
		return 0, fmt.Errorf("read the extents of %s: %w", f.Name(), errno)
	}
	return int(binary.NativeEndian.Uint32(buffer[20:])), nil
}
