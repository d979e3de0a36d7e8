package pages

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// shown is how many problems are reported; a torn page can make thousands.
const shown = 10

// Check reads every page of a file of bbolt that no process writes to, and returns
// the problems: a page that is referred to twice, or that is neither in use nor
// free, entries beyond their page, keys out of order. A file of which it finds
// nothing wrong is one that bbolt can map. An empty file is a new one.
func Check(from io.ReaderAt, size int64) error {
	if size == 0 {
		return nil
	}
	f, err := open(from, size)
	if err != nil {
		return err
	}
	newest := f.metas[0]
	if f.within() < max(newest.pages, 2) {
		return fmt.Errorf("it has %d bytes of %d", size, newest.pages*uint64(f.pageSize)) //nolint:gosec // positive
	}
	if newest.pages < 3 || newest.root < 2 {
		return errors.New("its meta page names no tree")
	}
	c := &checker{file: f, limit: newest.pages, use: make([]use, newest.pages)}
	c.freePages(newest)
	c.subtree(newest.root, nil, nil)
	if newest.freelist != noFreelist {
		for id, use := range c.use[2:] {
			if use == unknown {
				c.add(fmt.Errorf("page %d: it is neither in use nor free", id+2))
			}
		}
	}
	return c.result()
}

// use is the purpose of a page.
type use byte

const (
	unknown use = iota
	reached
	free
)

type checker struct {
	*file
	limit uint64
	use   []use
	// depth counts the buckets around the present page: at the top are only buckets.
	depth int
	found []error
	more  int
}

func (c *checker) add(problem error) {
	if len(c.found) == shown {
		c.more++
		return
	}
	c.found = append(c.found, problem)
}

func (c *checker) result() error {
	if c.more > 0 {
		c.found = append(c.found, fmt.Errorf("and %d more", c.more))
	}
	return errors.Join(c.found...)
}

func (c *checker) freePages(m meta) {
	ids, list, err := c.free(m)
	if err != nil {
		c.add(err)
		return
	}
	for _, id := range ids {
		switch {
		case id < 2 || id >= c.limit:
			c.add(fmt.Errorf("page %d: it is called free and is not in the file", id))
		case c.use[id] != unknown:
			c.add(fmt.Errorf("page %d: it is called free twice", id))
		default:
			c.use[id] = free
		}
	}
	if list != nil {
		c.reach(list)
	}
}

// reach marks a page as in use. It fails when it is already, or is free.
func (c *checker) reach(p *page) bool {
	for id := p.id; id <= p.id+p.more; id++ {
		switch c.use[id] {
		case reached:
			c.add(fmt.Errorf("page %d: it is referred to twice", id))
			return false
		case free:
			c.add(fmt.Errorf("page %d: it is in use and called free", id))
			return false
		}
		c.use[id] = reached
	}
	return true
}

// subtree checks the pages below a page. Its keys are at or after from, and before
// to; nil means unbounded. It returns the last key.
func (c *checker) subtree(id uint64, from, to []byte) []byte {
	p, err := c.read(id, c.limit)
	if err != nil {
		c.add(err)
		return from
	}
	if !c.reach(p) {
		return from
	}
	switch p.flags {
	case branchFlag:
		return c.branch(p, from, to)
	case leafFlag:
		return c.leaf(p, from, to)
	}
	c.add(fmt.Errorf("page %d: it is neither a branch nor a leaf", id))
	return from
}

// elements reads all entries, and checks the order of their keys.
func (c *checker) elements(p *page, from, to []byte) []element {
	if room := p.room(); room != p.count {
		c.add(p.miscounted(room))
	}
	elements := make([]element, p.count)
	last := from
	for i := range elements {
		e, err := p.element(i)
		if err != nil {
			c.add(err)
			return nil
		}
		order := bytes.Compare(last, e.key)
		switch {
		case last != nil && order > 0, i > 0 && order == 0:
			c.add(fmt.Errorf("page %d: the key of entry %d is out of order", p.id, i))
		case to != nil && bytes.Compare(e.key, to) >= 0:
			c.add(fmt.Errorf("page %d: the key of entry %d belongs to a later page", p.id, i))
		}
		elements[i], last = e, e.key
	}
	return elements
}

func (c *checker) branch(p *page, from, to []byte) []byte {
	elements := c.elements(p, from, to)
	if len(elements) == 0 {
		c.add(fmt.Errorf("page %d: it is a branch with nothing below", p.id))
		return from
	}
	last := from
	for i, e := range elements {
		end := to
		if i+1 < len(elements) {
			end = elements[i+1].key
		}
		last = c.subtree(e.child, e.key, end)
	}
	return last
}

func (c *checker) leaf(p *page, from, to []byte) []byte {
	last := from
	for _, e := range c.elements(p, from, to) {
		if len(e.key) == 0 {
			c.add(fmt.Errorf("page %d: it has an entry without a key", p.id))
		}
		switch {
		case e.isBucket():
			c.depth++
			c.bucket(p, e)
			c.depth--
		case c.depth == 0:
			c.add(notABucket(p, e))
		}
		last = e.key
	}
	return last
}

func notABucket(p *page, e element) error {
	return fmt.Errorf("page %d: the entry %q at the top is not a bucket", p.id, e.key)
}

func (c *checker) bucket(p *page, e element) {
	root, _, inside, err := e.bucket(p.id)
	switch {
	case err != nil:
		c.add(err)
	case inside == nil:
		c.subtree(root, nil, nil)
	default:
		for _, within := range c.elements(inside, nil, nil) {
			if within.isBucket() || len(within.key) == 0 {
				c.add(fmt.Errorf("page %d: the bucket %q has an entry that is not a value", p.id, e.key))
			}
		}
	}
}
