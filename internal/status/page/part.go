package page

import (
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"
)

// part is a piece of a page that is replaced when it changes. The element of a part has
// its id.
type part struct {
	id   string
	node g.Node
	// A part with rows is a frame around them that does not change: the element with the
	// id body has the rows, and nothing else.
	frame func(rows g.Node) g.Node
	body  string
	rows  []part
}

// screen is what the page shows at a path. The ids of its parts do not change.
type screen struct {
	title string
	parts []part
	// every is how often it is drawn again without a change, because it shows how long
	// something takes.
	every time.Duration
	// missing means that the object of the path does not exist.
	missing bool
}

// fragment is the HTML of a part or of a row. The rows of a table have its parent.
type fragment struct{ id, parent, html string }

// fragments renders the parts of a screen, in their order.
func (s screen) fragments() []fragment {
	all := []fragment{{id: "title", html: htmlOf(titleNode(s.title))}}
	for _, p := range s.parts {
		if p.frame == nil {
			all = append(all, fragment{id: p.id, html: htmlOf(p.node)})
		}
		for _, row := range p.rows {
			all = append(all, fragment{id: row.id, parent: p.body, html: htmlOf(row.node)})
		}
	}
	return all
}

func htmlOf(node g.Node) string {
	var text strings.Builder
	_ = node.Render(&text) // a strings.Builder does not fail
	return text.String()
}

// nodes are the parts of a screen for a whole page.
func (s screen) nodes() g.Group {
	var all g.Group
	for _, p := range s.parts {
		if p.frame == nil {
			all = append(all, p.node)
			continue
		}
		var rows g.Group
		for _, row := range p.rows {
			rows = append(rows, row.node)
		}
		all = append(all, p.frame(rows))
	}
	return all
}

// drawn is what a browser shows: the sums of the fragments, in their order.
type drawn []sum

type sum struct {
	id, parent string
	hash       uint64
}

func drawnOf(fragments []fragment) drawn {
	sums := make(drawn, 0, len(fragments))
	for _, f := range fragments {
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(f.html)) // never fails
		sums = append(sums, sum{f.id, f.parent, hash.Sum64()})
	}
	return sums
}

// digest is equal for equal screens.
func (d drawn) digest() string {
	hash := fnv.New64a()
	for _, s := range d {
		_, _ = hash.Write([]byte(s.id + "\x00" + strconv.FormatUint(s.hash, 36) + "\x00")) // never fails
	}
	return strconv.FormatUint(hash.Sum64(), 36)
}

// patch is one change of what a browser shows.
type patch struct {
	// Op is replace, remove or insert.
	Op string `json:"op"`
	ID string `json:"id"`
	// HTML replaces the element, or is inserted after the sibling After of the element
	// Parent; without a sibling it becomes the first.
	HTML   string `json:"html,omitempty"`
	Parent string `json:"parent,omitempty"`
	After  string `json:"after,omitempty"`
}

// patches returns what leads from what a browser shows to the fragments, in the order in
// which a browser applies it. Rows that exist before and after have the same order.
func patches(before drawn, after []fragment) (list []patch) {
	known, stays := map[string]sum{}, map[string]bool{}
	for _, s := range before {
		known[s.id] = s
	}
	for _, f := range after {
		stays[f.id] = true
	}
	for _, s := range before {
		if !stays[s.id] && s.parent != "" {
			list = append(list, patch{Op: "remove", ID: s.id})
		}
	}
	now, last := drawnOf(after), map[string]string{}
	for i, f := range after {
		was, exists := known[f.id]
		switch {
		case exists && was.hash != now[i].hash:
			list = append(list, patch{Op: "replace", ID: f.id, HTML: f.html})
		case !exists && f.parent != "":
			list = append(list, patch{Op: "insert", ID: f.id, HTML: f.html, Parent: f.parent, After: last[f.parent]})
		}
		last[f.parent] = f.id
	}
	return slices.Clip(list)
}
