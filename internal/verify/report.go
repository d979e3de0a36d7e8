package verify

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"time"
)

// Report is what a run found, for the project: send it with an issue.
type Report struct {
	Subject string            `json:"subject"` // such as Amazon EC2
	Version string            `json:"version"` // of the program
	System  string            `json:"system"`  // such as linux/amd64
	Started time.Time         `json:"started"`
	Ended   time.Time         `json:"ended"`
	Facts   map[string]string `json:"facts"` // such as the region
	// Findings has each assumption once.
	Findings  []Finding  `json:"findings"`
	Resources []Resource `json:"resources"`
}

// Count returns how many findings have an outcome.
func (r Report) Count(o Outcome) (n int) {
	for _, f := range r.Findings {
		if f.Outcome == o {
			n++
		}
	}
	return n
}

// Write writes the report as JSON, redacted.
func (r Report) Write(out io.Writer) error {
	findings := make([]Finding, len(r.Findings))
	for i, f := range r.Findings {
		f.Seen = Redact(f.Seen)
		findings[i] = f
	}
	r.Findings = findings
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}

// Print writes a finding for a person: one line, and what follows from a difference.
func (f Finding) Print(out io.Writer) error {
	_, err := fmt.Fprintf(out, "%-10s  %s: %s\n            seen: %s\n", f.Outcome, f.ID, f.Statement, Redact(f.Seen))
	if err == nil && f.Outcome == Differs {
		_, err = fmt.Fprintf(out, "            otherwise: %s\n", f.Otherwise)
	}
	return err
}

// private matches what identifies an account or opens something: numbers of AWS accounts,
// also in ARNs, keys and session tokens, and encoded authorization messages, which have the
// caller's policies (AWS General Reference, "AWS account identifiers"; IAM user guide,
// "Unique identifiers").
var private = regexp.MustCompile(`\b[0-9]{12}\b|\b(?:AKIA|ASIA|AROA|AIDA|AGPA|ANPA)[A-Z0-9]{12,}\b|` +
	`\b[A-Za-z0-9+/_-]{60,}={0,2}|\bhttps?://[^\s/@]+:[^\s/@]+@`)

// Redact removes what a report must not have from a service's text.
func Redact(text string) string { return private.ReplaceAllString(text, "[redacted]") }
