package tartree

import (
	"bytes"
	"errors"
	"io"
	"os"
)

// blockSize is the unit of copies, and of holes: a block of zeros is not written.
const blockSize = 64 << 10

// content copies the content of an entry into a new file. A stream has the zeros of a
// sparse file; the copy has holes again, so that it needs no more space than the original.
func (w *unpacker) content(file *os.File, size int64) error {
	for offset := int64(0); offset < size; {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(w.tar, w.buffer[:min(blockSize, size-offset)])
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return ErrTruncated
		}
		if err != nil {
			return err
		}
		if !bytes.Equal(w.buffer[:n], w.zeros[:n]) {
			if _, err := file.WriteAt(w.buffer[:n], offset); err != nil {
				return err
			}
		}
		offset += int64(n)
		w.Progress.add(int64(n))
	}
	return file.Truncate(size)
}
