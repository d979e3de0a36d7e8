package redact

import "strings"

// cover marks the parts of a text that are secrets. It searches the text as it was: what
// replaces one secret is no part of another.
type cover struct {
	text string
	// joined is the text without its line ends, and places are where each byte of it is in
	// the text. Both are empty for a text of one line.
	joined string
	places []int
	// changes are how many more secrets cover a byte than cover the byte before it.
	changes []int
	any     bool
}

func newCover(text string) *cover {
	c := &cover{text: text}
	if strings.Contains(text, "\n") {
		c.joined, c.places = joinLines(text)
	}
	return c
}

// search marks each occurrence of a secret, also those that are wrapped over several lines.
func (c *cover) search(secret string) {
	for at := range occurrences(c.text, secret) {
		c.mark(at, at+len(secret))
	}
	if c.places == nil {
		return
	}
	if strings.Contains(secret, "\n") {
		secret, _ = joinLines(secret)
	}
	if len(secret) < shortestSecret {
		return
	}
	for at := range occurrences(c.joined, secret) {
		c.mark(c.places[at], c.places[at+len(secret)-1]+1)
	}
}

// occurrences are where a secret begins in a text; they do not overlap.
func occurrences(text, secret string) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for from := 0; ; {
			at := strings.Index(text[from:], secret)
			if at < 0 || !yield(from+at) {
				return
			}
			from += at + len(secret)
		}
	}
}

func (c *cover) mark(from, to int) {
	if !c.any {
		c.changes, c.any = make([]int, len(c.text)+1), true
	}
	c.changes[from]++
	c.changes[to]--
}

// hide returns the text with each covered part replaced.
func (c *cover) hide() string {
	if !c.any {
		return c.text
	}
	var clean strings.Builder
	depth, shown := 0, 0 // shown is where the text begins that is not yet written
	for at, change := range c.changes {
		before := depth
		depth += change
		switch {
		case before == 0 && depth > 0:
			clean.WriteString(c.text[shown:at] + Hidden)
		case before > 0 && depth == 0:
			shown = at
		}
	}
	return clean.String() + c.text[shown:]
}
