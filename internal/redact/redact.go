// Package redact hides secrets in texts of programs that repeat what they were given:
// drivers, EC2, the operations of csi-proxy.
package redact

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Hidden replaces a secret.
const Hidden = "(redacted)"

// Secrets are secret values in the forms in which programs repeat them. The zero value has
// none.
type Secrets []string

// Add adds a value in the forms in which programs repeat it, and the secrets inside of it:
// its lines, and what a JSON object or a setting like password=x in it has. Values of less
// than four bytes occur in any text and are not hidden.
func (s *Secrets) Add(value string) {
	s.addValue(value)
	s.addJSON(value)
	if trimmed := strings.TrimSpace(value); strings.Contains(trimmed, "\n") {
		for line := range strings.Lines(trimmed) {
			s.addLine(strings.TrimSpace(line))
		}
	}
	// The longest first: a secret that begins with another must not be half left.
	slices.SortFunc(*s, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	*s = slices.Compact(*s)
}

// AddNamed adds a value that is taken for a secret by its name; a boolean is a setting.
func (s *Secrets) AddNamed(value string) {
	if _, err := strconv.ParseBool(value); err != nil {
		s.Add(value)
	}
}

// Text is a text with each of the secrets hidden, also those that are wrapped over several
// lines.
func (s Secrets) Text(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, Hidden)
	}
	if !strings.ContainsAny(text, "\r\n") {
		return text
	}
	for _, secret := range s {
		text = withoutWrapped(text, secret)
	}
	return text
}
