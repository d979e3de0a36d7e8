package local

import (
	"context"
	"fmt"
	"os"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

var _ backend.WrittenLister = (*Pool)(nil)

// WrittenRanges lists the ranges of the volume's file that the filesystem of the
// pool does not know to be holes or unwritten (lseek(2), SEEK_DATA). A filesystem
// without that answer calls the whole file data.
func (p *Pool) WrittenRanges(ctx context.Context, id string, visit func(offset, length int64) error) error {
	record, err := p.recordOnDisk(id)
	if err != nil {
		return err
	}
	data, err := p.openData(volumePath(id), os.O_RDONLY)
	if err != nil {
		return classify(err)
	}
	defer func() { _ = data.Close() }()
	for at := int64(0); at < record.Size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		begin, end, err := nextData(data, at, record.Size)
		if err != nil {
			return fmt.Errorf("volume %s: %w", id, classify(err))
		}
		if begin < end {
			if err := visit(begin, end-begin); err != nil {
				return err
			}
		}
		at = end
	}
	return nil
}
