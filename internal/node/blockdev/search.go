package blockdev

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

const (
	// searchChunk is read at once where all of a range is read.
	searchChunk = mebi
	// searchReaders read pages at the same time: a disk over a network answers
	// many reads in the time of one.
	searchReaders = 16
)

// search looks for data beyond the places that were loaded, all of them blank.
func (p *probe) search(written Written) (Content, error) {
	if written == nil {
		return p.searchPlaces()
	}
	content, err := p.searchWritten(written)
	if errors.Is(err, backend.ErrUnsupported) {
		return p.searchPlaces()
	}
	return content, err
}

// errFound ends the search.
var errFound = errors.New("data was found")

// searchWritten reads everything that was written.
func (p *probe) searchWritten(written Written) (Content, error) {
	content := Content{Kind: Blank}
	err := written(func(offset, length int64) error {
		end := min(offset+length, p.size)
		for at := max(offset, 0); at < end; at += searchChunk {
			data, err := p.read(at, min(searchChunk, end-at))
			if err != nil {
				return err
			}
			if i := firstNonzero(data); i >= 0 {
				start := i &^ (page - 1)
				content = identify(data[start:min(start+page, len(data))], at+int64(start))
				return errFound
			}
		}
		return p.ctx.Err()
	})
	if err != nil && !errors.Is(err, errFound) {
		return Content{}, fmt.Errorf("probe: read what was written: %w", err)
	}
	return content, nil
}

// searchPlaces reads a page at each of the places. Of several with data the
// first counts.
func (p *probe) searchPlaces() (Content, error) {
	type finding struct {
		offset  int64
		content Content
	}
	var mu sync.Mutex
	var found []finding
	var group errgroup.Group
	group.SetLimit(searchReaders)
	for _, offset := range places(p.size) {
		group.Go(func() error {
			data, err := p.read(offset, page)
			if err != nil || firstNonzero(data) < 0 {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			found = append(found, finding{offset, identify(data, offset)})
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return Content{}, err
	}
	if len(found) == 0 {
		return Content{Kind: Blank}, nil
	}
	return slices.MinFunc(found, func(a, b finding) int { return cmp.Compare(a.offset, b.offset) }).content, nil
}
