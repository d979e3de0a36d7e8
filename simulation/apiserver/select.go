package apiserver

import (
	"net/url"
	"strconv"
)

// selects reports whether a list or watch includes an object.
func (r Request) selects(o object) bool {
	return (r.Namespace == "" || o.namespace() == r.Namespace) && (r.only == "" || o.name() == r.only) && o.matches(r.selector)
}

// Only is the name of the only object that a list or watch asks for, or "".
func (r Request) Only() string { return r.only }

// page is a part of a list. What is added or removed between two pages shifts
// the next one: tests that care change nothing meanwhile.
type page struct{ limit, start int }

func pageOf(query url.Values) page {
	var p page
	p.limit, _ = strconv.Atoi(query.Get("limit"))
	p.start, _ = strconv.Atoi(query.Get("continue"))
	return p
}

// of is the page's part of a list, and where the next one starts.
func (p page) of(items []object) (part []object, next string) {
	items = items[min(p.start, len(items)):]
	if p.limit == 0 || len(items) <= p.limit {
		return items, ""
	}
	return items[:p.limit], strconv.Itoa(p.start + p.limit)
}

// Selects reports whether a list or watch has a label or field selector.
func (r Request) Selects() bool { return r.selector != "" || r.only != "" }

// Selector is the label selector of a list or watch, or "".
func (r Request) Selector() string { return r.selector }
