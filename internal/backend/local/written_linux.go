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
// without that answer calls the whole file data. The file counts, not the record:
// an expansion that was interrupted between the two may be in use already.
func (p *Pool) WrittenRanges(ctx context.Context, id string, visit func(offset, length int64) error) error {
	if _, err := p.recordOnDisk(id); err != nil {
		return err
	}
	data, err := p.openData(volumePath(id), os.O_RDONLY)
	if err != nil {
		return classify(err)
	}
	defer func() { _ = data.Close() }()
	stat, err := statOf(data)
	if err != nil {
		return classify(err)
	}
	for at := int64(0); at < stat.Size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		begin, end, err := nextData(data, at, stat.Size)
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
