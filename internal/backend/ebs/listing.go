package ebs

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// listingLifetime is how long the pages of one listing may take.
const listingLifetime = 30 * time.Second

// listing keeps a whole listing for the pages that follow its first. EC2 has no
// order of its own to begin in the middle of, and a listing of it all for each
// page would be one too many for each.
type listing[T any] struct {
	mu    sync.Mutex
	items []T
	until time.Time
}

// page gives at most limit items (0: all) whose IDs come after the given one.
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

// recall gives what was kept, to who asks for more than a beginning.
func (l *listing[T]) recall(after string) ([]T, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if after == "" || l.items == nil || !time.Now().Before(l.until) {
		return nil, false
	}
	return l.items, true
}

// keep holds a new listing; its time is not extended by use.
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

// pages puts EC2's pages together.
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
