package windows

import "encoding/binary"

// pageSize divides all sector sizes.
const pageSize = 4096

// content is the data of a disk's sectors: the pages that were written, and zeros
// or noise between them.
type content struct {
	pages map[int64][]byte
	noise bool
}

// page returns a page to read; it must not be changed.
func (c *content) page(number int64) []byte {
	if page, ok := c.pages[number]; ok {
		return page
	}
	if !c.noise {
		return zeroPage
	}
	page := make([]byte, pageSize)
	for i := 0; i < pageSize; i += 8 { // splitmix64
		x := (uint64(number)*pageSize + uint64(i) + 1) * 0x9E3779B97F4A7C15
		x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
		binary.LittleEndian.PutUint64(page[i:], (x^x>>27)*0x94D049BB133111EB)
	}
	return page
}

// zeroPage is never written.
var zeroPage = make([]byte, pageSize)

func (c *content) read(p []byte, offset int64) {
	for len(p) > 0 {
		n := copy(p, c.page(offset / pageSize)[offset%pageSize:])
		p, offset = p[n:], offset+int64(n)
	}
}

func (c *content) write(p []byte, offset int64) {
	if c.pages == nil {
		c.pages = map[int64][]byte{}
	}
	for len(p) > 0 {
		number := offset / pageSize
		page, ok := c.pages[number]
		if !ok {
			page = append([]byte(nil), c.page(number)...)
			c.pages[number] = page
		}
		n := copy(page[offset%pageSize:], p)
		p, offset = p[n:], offset+int64(n)
	}
}

// erase writes zeros.
func (c *content) erase(offset, length int64) {
	for length > 0 {
		n := min(length, pageSize-offset%pageSize)
		_, written := c.pages[offset/pageSize]
		switch {
		case n == pageSize && !c.noise:
			delete(c.pages, offset/pageSize)
		case written || c.noise:
			c.write(zeroPage[:n], offset)
		}
		offset, length = offset+n, length-n
	}
}

// blank reports whether all bytes from offset to end are zero.
func (c *content) blank(offset, end int64) bool {
	if c.noise {
		return offset >= end
	}
	for number, page := range c.pages {
		start := number * pageSize
		from, to := max(offset-start, 0), min(end-start, pageSize)
		for i := from; i < to; i++ {
			if page[i] != 0 {
				return false
			}
		}
	}
	return true
}
