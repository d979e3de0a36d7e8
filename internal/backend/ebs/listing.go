package ebs

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-csi/holdfast/internal/concurrency"
)

// listingLifetime is how long the pages of one listing may take.
const listingLifetime = 30 * time.Second

// listings caches whole listings, by what they are restricted to, for their later
// pages. EC2's listings have no order, so a page cannot begin at an ID; without the
// cache each page would need a whole listing.
type listings[T any] struct {
	cached concurrency.Expiring[string, []T]
}

// page returns at most limit items (0: all) whose IDs come after the given one.
func (l *listings[T]) page(of, after string, limit int, id func(T) string, list func() ([]T, error)) ([]T, error) {
	items, ok := l.cached.Get(of)
	if after == "" || !ok {
		var err error
		if items, err = list(); err != nil {
			return nil, err
		}
		slices.SortFunc(items, func(a, b T) int { return cmp.Compare(id(a), id(b)) })
	}
	start, found := slices.BinarySearchFunc(items, after,
		func(item T, after string) int { return cmp.Compare(id(item), after) })
	if found {
		start++
	}
	rest := items[start:]
	if limit <= 0 || len(rest) <= limit {
		l.cached.Delete(of)
		return slices.Clone(rest), nil
	}
	if after == "" || !ok { // a page of a cached listing does not extend its time
		l.cached.Set(of, items, listingLifetime)
	}
	return slices.Clone(rest[:limit]), nil
}
