// Package redact hides secrets in texts of programs that repeat what they were given:
// drivers, EC2, the operations of csi-proxy.
package redact

import (
	"strconv"
	"strings"
)

const (
	// Hidden replaces a secret.
	Hidden = "(redacted)"
	// hiddenText replaces a text that cannot be searched at a reasonable cost.
	hiddenText = "(redacted: the text and the secrets are too long to compare)"
)

const (
	// mostForms bounds the forms that are kept: some 70,000 secrets of four bytes.
	mostForms = 1 << 20
	// mostWork bounds the bytes that a search compares, about a second of a processor.
	mostWork = 1 << 30
	// workPerForm is the cost of a search in a short text, in bytes compared.
	workPerForm = 64
)

// Secrets are secret values in the forms in which programs repeat them. The zero value has
// none. Texts may be cleaned concurrently.
type Secrets []string

// Add adds a value in the forms in which programs repeat it, and the secrets inside of it:
// its lines, and what a JSON object or a setting like password=x in it has. Values of less
// than four bytes occur in any text and are not hidden. The cost depends on the value alone:
// the users of a driver decide how many values there are.
func (s *Secrets) Add(value string) {
	if s.tooMany() {
		return
	}
	s.addValue(value)
	s.addJSON(value)
	if trimmed := strings.TrimSpace(value); strings.Contains(trimmed, "\n") {
		for line := range strings.Lines(trimmed) {
			s.addLine(strings.TrimSpace(line))
		}
	}
}

// AddNamed adds a value that is taken for a secret by its name; a boolean is a setting.
func (s *Secrets) AddNamed(value string) {
	if _, err := strconv.ParseBool(value); err != nil {
		s.Add(value)
	}
}

// tooMany reports whether no more forms are kept, so that every text is hidden as a whole.
func (s Secrets) tooMany() bool { return len(s) > mostForms }

// Text is a text with each of the secrets hidden, also those that are wrapped over several
// lines. Secrets that touch or overlap are hidden together. A text is hidden as a whole if
// the search would take longer than about a second.
func (s Secrets) Text(text string) string {
	if s.tooMany() || len(s)*(len(text)+workPerForm) > mostWork {
		return hiddenText
	}
	found := newCover(text)
	for _, secret := range s {
		found.search(secret)
	}
	return found.hide()
}
