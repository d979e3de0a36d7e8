package pages

import (
	"bytes"
	"fmt"
	"io"
)

// Standing is how sure it is that a record is of the last transaction.
type Standing int

// The standings, the surest first.
const (
	// Reached: the last transaction's tree leads to it.
	Reached Standing = iota
	// Loose: no tree leads to its page any more, but that was not free in the last
	// transaction: a page above it is lost.
	Loose
	// Before: the tree of the transaction before leads to it; or the last one's does and
	// its page is called free, so that the free pages and the tree contradict each other.
	Before
	// Unsure: as Loose, and which pages were free is not known. It may be of any
	// time.
	Unsure
)

// Record is one key and its value.
type Record struct {
	// Bucket is the one at the top; "" where no tree says so.
	Bucket     string
	Key, Value []byte
	Standing   Standing
}

// Salvaged has the records that were read from a file.
type Salvaged struct {
	Records []Record
	// Whole are the complete buckets at the top: for these,
	// there are records with the standing Reached only.
	Whole map[string]bool
	// Sequences are the buckets' numbers, as far as they are known.
	Sequences map[string]uint64
	// Problems lists the pages that could not be read.
	Problems []error
}

// Salvage reads the intact pages of a damaged file: those in the trees, and the leaves
// of lost branches. Buckets within buckets are not looked for. It never fails: of a
// file of other content, there is nothing.
func Salvage(from io.ReaderAt, size int64) *Salvaged {
	f, err := open(from, size)
	s := &salvage{file: f, limit: f.within(), state: map[uint64]use{}, Salvaged: Salvaged{Whole: map[string]bool{},
		Sequences: map[string]uint64{}}}
	if err != nil {
		s.note(err)
	}
	loose := Unsure
	for i, m := range f.metas {
		if i == 0 {
			loose = s.skipFree(m)
		}
		s.top(m.root, []Standing{Reached, Before}[i])
		if s.complete {
			return &s.Salvaged // of a file with nothing wrong in its trees
		}
	}
	if s.contradicted {
		loose = max(loose, Before)
	}
	s.scan(loose)
	return &s.Salvaged
}

type salvage struct {
	*file
	limit uint64
	state map[uint64]use
	// complete: the newest tree's top is whole, and so are all of its buckets.
	complete bool
	// contradicted: the newest tree leads to a page that is called free.
	contradicted bool
	Salvaged
}

func (s *salvage) note(problem error) {
	if len(s.Problems) < shown {
		s.Problems = append(s.Problems, problem)
	}
}

// skipFree notes the pages that were free in the last transaction.
func (s *salvage) skipFree(m meta) Standing {
	ids, list, err := s.free(m)
	if err != nil {
		s.note(err)
	}
	if err != nil || list == nil {
		return Unsure
	}
	for _, id := range ids {
		s.state[id] = free
	}
	return Loose
}

// tree is the tree of one transaction.
type tree struct {
	standing Standing
	seen     map[uint64]bool // its pages that were read
}

// top reads the tree whose values are the buckets.
func (s *salvage) top(root uint64, standing Standing) {
	t := &tree{standing: standing, seen: map[uint64]bool{}}
	complete := true
	whole := s.walk(root, t, func(p *page, e element) {
		if !e.isBucket() {
			s.note(notABucket(p, e))
			complete = false
		}
		complete = len(e.value) >= bucketSize && s.take(p, e, t) && complete
	})
	s.complete = s.complete || standing == Reached && whole && complete
	if standing != Reached {
		return
	}
	for id := range t.seen {
		s.state[id] = reached
	}
}

// stale reports whether the last transaction's tree leads to a page that was free in
// that transaction: the reference to the page or the list of free pages is damaged.
func (s *salvage) stale(id uint64, t *tree) bool {
	return t.standing == Reached && s.state[id] == free
}

// take reads one bucket, and reports whether nothing of it is missing.
func (s *salvage) take(p *page, e element, t *tree) bool {
	name := string(e.key)
	if s.Whole[name] {
		return true // older versions of it are not needed
	}
	root, sequence, inside, err := e.bucket(p.id)
	if err != nil {
		s.note(err)
		return false
	}
	s.Sequences[name] = max(s.Sequences[name], sequence)
	keep := func(p *page, e element) {
		switch {
		case e.isBucket():
		case s.stale(p.id, t):
			s.keep(name, e, Before)
		default:
			s.keep(name, e, t.standing)
		}
	}
	var whole bool
	if inside == nil {
		whole = s.walk(root, t, keep)
	} else {
		whole = s.entries(inside, keep) && !s.stale(p.id, t)
	}
	if whole && t.standing == Reached {
		s.Whole[name] = true
	}
	return whole
}

func (s *salvage) keep(bucket string, e element, standing Standing) {
	s.Records = append(s.Records, Record{Bucket: bucket, Key: bytes.Clone(e.key), Value: bytes.Clone(e.value),
		Standing: standing})
}

// walk visits the entries of all leaves below a page. It reports whether all could
// be read. A page that was seen is not read again.
func (s *salvage) walk(id uint64, t *tree, visit func(*page, element)) bool {
	if t.seen[id] {
		s.note(fmt.Errorf("page %d: it is referred to twice", id))
		return false
	}
	t.seen[id] = true
	stale := s.stale(id, t)
	if stale {
		s.contradicted = true
		s.note(fmt.Errorf("page %d: it is in use and called free", id))
	}
	p, err := s.read(id, s.limit)
	if err != nil {
		s.note(err)
		return false
	}
	switch p.flags {
	case leafFlag:
		return s.entries(p, visit) && !stale
	case branchFlag:
		below := true
		whole := s.entries(p, func(_ *page, e element) { below = s.walk(e.child, t, visit) && below })
		return whole && below && p.count > 0 && !stale
	}
	s.note(fmt.Errorf("page %d: it is neither a branch nor a leaf", id))
	return false
}

// entries visits the entries of one page that can be read, and reports whether
// these are all and in order.
func (s *salvage) entries(p *page, visit func(*page, element)) bool {
	whole := true
	if room := p.room(); room != p.count {
		s.note(p.miscounted(room))
		whole = false
		if other := p.counting(room); other.ordered() {
			p = other
		}
	}
	var last []byte
	for i := range p.count {
		e, err := p.element(i)
		if err == nil && i > 0 && bytes.Compare(last, e.key) >= 0 {
			err = fmt.Errorf("page %d: the key of entry %d is out of order", p.id, i)
		}
		if err == nil && p.flags == leafFlag && len(e.key) == 0 {
			err = fmt.Errorf("page %d: entry %d has no key", p.id, i)
		}
		if err != nil {
			s.note(err)
			whole = false
		}
		if e.key == nil || p.flags == leafFlag && len(e.key) == 0 {
			continue
		}
		last = e.key
		visit(p, e)
	}
	return whole
}

// scan looks for leaves where no tree leads to.
func (s *salvage) scan(standing Standing) {
	for id := uint64(2); id < s.limit; id++ {
		if s.state[id] != unknown {
			continue
		}
		p, err := s.read(id, s.limit)
		if err != nil || p.flags != leafFlag {
			continue // of something else, or continued from a page before
		}
		s.entries(p, func(p *page, e element) {
			if !e.isBucket() {
				s.keep("", e, standing)
				return
			}
			if _, _, inside, err := e.bucket(p.id); err == nil && inside != nil {
				s.take(p, e, &tree{standing: standing})
			}
		})
	}
}
