package ebs

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// listingLifetime is how long the pages of one listing may take.
const listingLifetime = 30 * time.Second

// listing keeps a whole listing for its later pages. EC2's listings have no order, so a
// page cannot begin at an ID; without the kept listing each page would need a whole one.
type listing[T any] struct {
	mu    sync.Mutex
	items []T
	until time.Time
}

// page returns at most limit items (0: all) whose IDs come after the given one.
func (l *listing[T]) page(after string, limit int, id func(T) string, list func() ([]T, error)) ([]T, error) {
	items, kept := l.recall(after)
	if !kept {
		var err error
		if items, err = list(); err != nil {
			return nil, err
		}
		slices.SortFunc(items, func(a, b T) int { return cmp.Compare(id(a), id(b)) })
	}
	start, found := slices.BinarySearchFunc(items, after, func(item T, after string) int { return cmp.Compare(id(item), after) })
	if found {
		start++
	}
	rest := items[start:]
	if limit > 0 && len(rest) > limit {
		l.keep(items, kept)
		return slices.Clone(rest[:limit]), nil
	}
	l.drop()
	return slices.Clone(rest), nil
}

// recall returns the kept items for a page that is not the first.
func (l *listing[T]) recall(after string) ([]T, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if after == "" || l.items == nil || !time.Now().Before(l.until) {
		return nil, false
	}
	return l.items, true
}

// keep keeps a new listing; use does not extend its time.
func (l *listing[T]) keep(items []T, kept bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !kept {
		l.items, l.until = items, time.Now().Add(listingLifetime)
	}
}

func (l *listing[T]) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = nil
}

// pages joins EC2's pages.
func pages[T any](page func(token string) ([]T, string, error)) ([]T, error) {
	var all []T
	token := ""
	for {
		items, next, err := page(token)
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
		if token = next; token == "" {
			return all, nil
		}
	}
}
