// Package pages reads files of bbolt without bbolt: with bounded reads instead of a
// mapping, and with every number in the file checked before it is used. For a file
// that was truncated or overwritten it returns errors, while bbolt's own code, which
// trusts its files, would fault.
//
// The format (bbolt 1.4 and later, version 2, in the byte order of the machine):
// the file is a row of pages, each with its own number in its header. Pages 0
// and 1 have the metadata of the last two transactions, one of which is always
// whole. They name the root of a tree of branch and leaf pages, and the list of
// pages that are free. A leaf has keys with values; a value can be a bucket,
// which has its own tree, or, if small, its one leaf in the value itself.
package pages

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

const (
	headerSize   = 16
	elementSize  = 16
	bucketSize   = 16
	metaSize     = 64
	checksummed  = 56
	magic        = 0xED0CDAED
	version      = 2
	smallestPage = 1 << 10
	largestPage  = 16 << 20

	branchFlag   = 0x01
	leafFlag     = 0x02
	metaFlag     = 0x04
	freelistFlag = 0x10

	bucketFlag = 0x01
	// noFreelist means that there is none: every page that is not in use is free.
	noFreelist = ^uint64(0)
	// manyFree means that the count of free pages does not fit; the count is the
	// first entry of the list then.
	manyFree = 0xFFFF
)

// meta is the meta page of one transaction.
type meta struct {
	pageSize int64
	root     uint64
	sequence uint64
	freelist uint64
	pages    uint64 // all page numbers are below
	txid     uint64
}

// file is an open file of bbolt.
type file struct {
	from     io.ReaderAt
	size     int64
	pageSize int64
	metas    []meta // the whole ones, the newest first
}

var errNoMeta = errors.New("neither of its two meta pages is whole")

// open reads the meta pages. Without any, the size of a page is a guess, and
// the error is errNoMeta.
func open(from io.ReaderAt, size int64) (*file, error) {
	f := &file{from: from, size: size}
	first, err := f.readMeta(0)
	if err == nil {
		f.pageSize = first.pageSize
		f.metas = append(f.metas, first)
	}
	for pageSize := int64(smallestPage); pageSize <= largestPage && err != nil; pageSize *= 2 {
		var second meta
		if second, err = f.readMeta(pageSize); err == nil {
			f.pageSize = second.pageSize
			f.metas = append(f.metas, second)
			return f, nil
		}
	}
	if err != nil {
		f.pageSize = f.guessPageSize()
		return f, errNoMeta
	}
	if second, err := f.readMeta(f.pageSize); err == nil {
		f.metas = append(f.metas, second)
		if second.txid > first.txid {
			f.metas[0], f.metas[1] = second, first
		}
	}
	return f, nil
}

func (f *file) readMeta(at int64) (meta, error) {
	var data [headerSize + metaSize]byte
	if _, err := f.from.ReadAt(data[:], at); err != nil {
		return meta{}, err
	}
	body := data[headerSize:]
	order := binary.NativeEndian
	sum := fnv.New64a()
	_, _ = sum.Write(body[:checksummed])
	if order.Uint32(body) != magic || order.Uint32(body[4:]) != version ||
		order.Uint64(body[checksummed:]) != sum.Sum64() {
		return meta{}, errNoMeta
	}
	m := meta{
		pageSize: int64(order.Uint32(body[8:])), root: order.Uint64(body[16:]), sequence: order.Uint64(body[24:]),
		freelist: order.Uint64(body[32:]), pages: order.Uint64(body[40:]), txid: order.Uint64(body[48:]),
	}
	if m.pageSize < smallestPage || m.pageSize > largestPage || m.pageSize&(m.pageSize-1) != 0 {
		return meta{}, errNoMeta
	}
	return m, nil
}

// guessPageSize is the one with which the most pages have their own number.
func (f *file) guessPageSize() int64 {
	best, most := int64(4096), int64(0)
	for pageSize := int64(smallestPage); pageSize <= 64<<10; pageSize *= 2 {
		own := int64(0)
		for id := int64(2); (id+1)*pageSize <= f.size; id++ {
			var data [8]byte
			if _, err := f.from.ReadAt(data[:], id*pageSize); err == nil && binary.NativeEndian.Uint64(data[:]) == uint64(id) { //nolint:gosec // positive
				own++
			}
		}
		if own > most {
			best, most = pageSize, own
		}
	}
	return best
}

// page is one page with its overflow pages.
type page struct {
	id    uint64
	flags uint16
	count int
	more  uint64 // pages that follow and belong to it
	data  []byte // of all of them, with the header
}

// within is the number of whole pages that the file has.
func (f *file) within() uint64 { return uint64(f.size / f.pageSize) } //nolint:gosec // a size is not negative

// read reads a page and its overflow pages, all below the limit.
func (f *file) read(id, limit uint64) (*page, error) {
	limit = min(limit, f.within())
	if id < 2 || id >= limit {
		return nil, fmt.Errorf("page %d: the file has pages 2 to %d", id, limit-1)
	}
	data := make([]byte, f.pageSize)
	at := int64(id) * f.pageSize //nolint:gosec // within the file
	if _, err := f.from.ReadAt(data, at); err != nil {
		return nil, fmt.Errorf("page %d: %w", id, err)
	}
	order := binary.NativeEndian
	p := &page{id: id, flags: order.Uint16(data[8:]), count: int(order.Uint16(data[10:])),
		more: uint64(order.Uint32(data[12:])), data: data}
	if own := order.Uint64(data); own != id {
		return nil, fmt.Errorf("page %d: its header has the number %d", id, own)
	}
	if p.more >= limit-id {
		return nil, fmt.Errorf("page %d: its %d overflow pages end beyond the file", id, p.more)
	}
	if p.more > 0 {
		p.data = make([]byte, int64(p.more+1)*f.pageSize) //nolint:gosec // within the file
		if _, err := f.from.ReadAt(p.data, at); err != nil {
			return nil, fmt.Errorf("page %d: %w", id, err)
		}
	}
	return p, nil
}

// element is one entry of a branch or a leaf.
type element struct {
	flags      uint32
	key, value []byte
	child      uint64 // of a branch
}

func (e element) isBucket() bool { return e.flags&bucketFlag != 0 }

// element reads one entry. It fails where a part is not within the page.
func (p *page) element(i int) (element, error) {
	header := headerSize + i*elementSize
	if i < 0 || i >= p.count || header+elementSize > len(p.data) {
		return element{}, fmt.Errorf("page %d: it has no room for entry %d of %d", p.id, i, p.count)
	}
	order := binary.NativeEndian
	raw := p.data[header:]
	var e element
	var position, key, value uint64
	if p.flags == branchFlag {
		position, key, e.child = uint64(order.Uint32(raw)), uint64(order.Uint32(raw[4:])), order.Uint64(raw[8:])
	} else {
		e.flags = order.Uint32(raw)
		position, key, value = uint64(order.Uint32(raw[4:])), uint64(order.Uint32(raw[8:])), uint64(order.Uint32(raw[12:]))
	}
	if position < uint64((p.count-i)*elementSize) || position+key+value > uint64(len(raw)) { //nolint:gosec // both small and positive
		return element{}, fmt.Errorf("page %d: entry %d is not within the page", p.id, i)
	}
	e.key = raw[position : position+key]
	e.value = raw[position+key : position+key+value]
	if e.flags&^bucketFlag != 0 || e.isBucket() && len(e.value) < bucketSize {
		return element{}, fmt.Errorf("page %d: entry %d is of no known sort", p.id, i)
	}
	return e, nil
}

// room is the number of entries by the position of the first one's key, which comes
// right after the last entry. It is the count if the page has no entry, or if the
// position cannot be that of a key.
func (p *page) room() int {
	if p.count == 0 || headerSize+elementSize > len(p.data) {
		return p.count
	}
	at := headerSize
	if p.flags != branchFlag {
		at += 4 // behind the flags
	}
	position := int(binary.NativeEndian.Uint32(p.data[at:]))
	if position%elementSize != 0 {
		return p.count
	}
	return position / elementSize
}

func (p *page) miscounted(room int) error {
	return fmt.Errorf("page %d: its header counts %d entries, and it has %d", p.id, p.count, room)
}

// counting is the page with another count in its header.
func (p *page) counting(count int) *page {
	other := *p
	other.count = count
	return &other
}

// ordered reports whether all entries can be read and have ascending keys.
func (p *page) ordered() bool {
	var last []byte
	for i := range p.count {
		e, err := p.element(i)
		if err != nil || i > 0 && bytes.Compare(last, e.key) >= 0 {
			return false
		}
		last = e.key
	}
	return p.count > 0
}

// bucket reads the value of a bucket: its root, or, for one within the value, its
// page.
func (e element) bucket(holder uint64) (root, sequence uint64, inside *page, err error) {
	order := binary.NativeEndian
	root, sequence = order.Uint64(e.value), order.Uint64(e.value[8:])
	if root != 0 {
		return root, sequence, nil, nil
	}
	data := e.value[bucketSize:]
	if len(data) < headerSize {
		return 0, 0, nil, fmt.Errorf("page %d: the bucket %q ends within its header", holder, e.key)
	}
	inside = &page{id: holder, flags: order.Uint16(data[8:]), count: int(order.Uint16(data[10:])), data: data}
	if inside.flags != leafFlag {
		return 0, 0, nil, fmt.Errorf("page %d: the bucket %q is not a leaf", holder, e.key)
	}
	return 0, sequence, inside, nil
}

// free reads the list of free pages.
func (f *file) free(m meta) (ids []uint64, list *page, err error) {
	if m.freelist == noFreelist {
		return nil, nil, nil
	}
	list, err = f.read(m.freelist, m.pages)
	if err != nil {
		return nil, nil, fmt.Errorf("the list of free pages: %w", err)
	}
	if list.flags != freelistFlag {
		return nil, nil, fmt.Errorf("page %d: it is not the list of free pages", list.id)
	}
	data, count := list.data[headerSize:], uint64(list.count) //nolint:gosec // positive
	if list.count == manyFree {
		count, data = binary.NativeEndian.Uint64(data), data[8:]
	}
	if count > uint64(len(data)/8) {
		return nil, nil, fmt.Errorf("page %d: it has no room for %d free pages", list.id, count)
	}
	ids = make([]uint64, count)
	for i := range ids {
		ids[i] = binary.NativeEndian.Uint64(data[i*8:])
	}
	return ids, list, nil
}
