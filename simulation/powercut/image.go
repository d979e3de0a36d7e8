package powercut

import (
	"bytes"
	"maps"
)

const pageSize = 4096

type page [pageSize]byte

var zeros page // never written to

// Image is the content of a disk: zeros, except where it was written to. It is not
// safe for concurrent use.
type Image struct {
	size  int64
	under *Image
	pages map[int64]*page // by number; nil for one of zeros
}

// NewImage is a disk of size bytes, all of them zero.
func NewImage(size int64) *Image { return &Image{size: size, pages: map[int64]*page{}} }

// Over is a copy of an image. The image must not change while the copy is in use.
func (i *Image) Over() *Image { return &Image{size: i.size, under: i, pages: map[int64]*page{}} }

// Flat is a copy of an image that shares nothing with it that can change.
func (i *Image) Flat() *Image {
	flat := NewImage(i.size)
	for _, layer := range i.layers() {
		for number, p := range layer.pages {
			if p == nil {
				delete(flat.pages, number)
				continue
			}
			content := *p
			flat.pages[number] = &content
		}
	}
	return flat
}

// layers lists the images that this one consists of, the lowest first.
func (i *Image) layers() []*Image {
	if i.under == nil {
		return []*Image{i}
	}
	return append(i.under.layers(), i)
}

func (i *Image) page(number int64) *page {
	for layer := i; layer != nil; layer = layer.under {
		if p, ok := layer.pages[number]; ok {
			return p
		}
	}
	return nil
}

// inPages calls do for each part of a range that lies within one page.
func inPages(offset, length int64, do func(number, within, done, part int64)) {
	for done := int64(0); done < length; {
		number, within := (offset+done)/pageSize, (offset+done)%pageSize
		part := min(pageSize-within, length-done)
		do(number, within, done, part)
		done += part
	}
}

func (i *Image) read(target []byte, offset int64) {
	inPages(offset, int64(len(target)), func(number, within, done, part int64) {
		from := i.page(number)
		if from == nil {
			from = &zeros
		}
		copy(target[done:done+part], from[within:])
	})
}

func (i *Image) write(data []byte, offset int64) {
	inPages(offset, int64(len(data)), func(number, within, done, part int64) {
		if bytes.Equal(data[done:done+part], zeros[:part]) {
			i.zero(number*pageSize+within, part)
			return
		}
		copy(i.own(number)[within:], data[done:done+part])
	})
}

func (i *Image) zero(offset, length int64) {
	inPages(offset, length, func(number, within, _, part int64) {
		switch {
		case part == pageSize:
			i.pages[number] = nil
		case i.page(number) != nil:
			clear(i.own(number)[within : within+part])
		}
	})
}

// own is the page of this layer, with the content that it has in the image.
func (i *Image) own(number int64) *page {
	if p := i.pages[number]; p != nil {
		return p
	}
	p := new(page)
	if below := i.page(number); below != nil {
		*p = *below
	}
	i.pages[number] = p
	return p
}

// content is what Flat has, as recordings are saved.
func (i *Image) content() map[int64][]byte {
	content := map[int64][]byte{}
	for number, p := range i.Flat().pages {
		content[number] = p[:]
	}
	return content
}

func imageOf(size int64, content map[int64][]byte) *Image {
	image := NewImage(size)
	for number, data := range maps.All(content) {
		image.write(data, number*pageSize)
	}
	return image
}
