package blockdev

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/progress"
	"github.com/holdfast-csi/holdfast/internal/sample"
)

const (
	// searchChunk is read at once where all of a range is read.
	searchChunk = mebi
	// searchReaders read pages at the same time: a disk over a network answers
	// many reads in the time of one.
	searchReaders = 16
)

// errFound ends the search.
var errFound = errors.New("data was found")

// searchWritten reads everything that was written. known is false if that is not known.
func (p *probe) searchWritten(written Written) (content Content, known bool, err error) {
	content = Content{Kind: Blank}
	if written == nil {
		return content, false, nil
	}
	task := progress.Begin(p.ctx, "reading", p.size)
	defer task.End()
	err = written(func(offset, length int64) error {
		end := min(offset+length, p.size)
		for at := max(offset, 0); at < end; at += searchChunk {
			task.Set(at)
			data, err := p.read(at, min(searchChunk, end-at))
			if err != nil {
				return err
			}
			if i := firstNonzero(data); i >= 0 {
				start := i &^ (int(sample.Page) - 1)
				content = identify(data[start:min(start+int(sample.Page), len(data))], at+int64(start))
				return errFound
			}
		}
		return p.ctx.Err()
	})
	switch {
	case err == nil, errors.Is(err, errFound):
		return content, true, nil
	case errors.Is(err, backend.ErrUnsupported):
		return content, false, nil
	}
	return Content{}, false, fmt.Errorf("probe: read the written extents: %w", err)
}

// searchSample reads a page at each of the offsets. Of several with data the
// first counts. After an error no further read begins: a failing disk may need
// half a minute for each.
func (p *probe) searchSample() (Content, error) {
	type finding struct {
		offset  int64
		content Content
	}
	var mu sync.Mutex
	var found []finding
	group, ctx := errgroup.WithContext(p.ctx)
	group.SetLimit(searchReaders)
	offsets := sample.Offsets(p.size)
	task := progress.Begin(p.ctx, "reading", int64(len(offsets))*sample.Page)
	defer task.End()
	for _, offset := range offsets {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			defer task.Add(sample.Page)
			data, err := p.read(offset, sample.Page)
			if err != nil || firstNonzero(data) < 0 {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			found = append(found, finding{offset, identify(data, offset)})
			return nil
		})
	}
	if err := cmp.Or(group.Wait(), p.ctx.Err()); err != nil {
		return Content{}, err
	}
	if len(found) == 0 {
		return Content{Kind: Blank}, nil
	}
	return slices.MinFunc(found, func(a, b finding) int { return cmp.Compare(a.offset, b.offset) }).content, nil
}

// identify names the content that a page which is not blank belongs to. The head of the
// device is blank, so a copy of a superblock means that the first is gone.
func identify(data []byte, offset int64) Content {
	gone := func(fsType string) Content {
		return corrupt(Content{Type: fsType}, fmt.Sprintf("its superblock is gone; a copy is at offset %d", offset))
	}
	// The page may begin before the group does.
	for sb := data; len(sb) >= 1024; sb = sb[512:] {
		switch {
		case string(sb[:4]) == "XFSB":
			return gone("xfs")
		case little.Uint16(sb[0x38:]) == extMagic && little.Uint32(sb[0x18:]) <= 6:
			return gone(extType(little.Uint32(sb[0x5c:]), little.Uint32(sb[0x60:]), little.Uint32(sb[0x64:])))
		}
	}
	return unrecognized(offset + int64(firstNonzero(data)))
}
