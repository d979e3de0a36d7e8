// Package why reports what a pod, a claim, a volume or a snapshot waits for. It
// follows the references between objects as Kubernetes' controllers and kubelets
// do, and reports missing objects, failed calls with their codes and counts, and the
// remedy. It only reads, from a cluster or from a host.
package why

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
)

// Finding is one reason why a subject waits.
type Finding struct {
	// What is a sentence without its full stop.
	What string `json:"what"`
	// Since is when it began, zero if no object records it.
	Since time.Time `json:"since,omitzero"`
	// Call is the RPC that failed, Code the name of its gRPC code.
	Call string `json:"call,omitempty"`
	Code string `json:"code,omitempty"`
	// Attempts counts the failures of the call.
	Attempts int `json:"attempts,omitempty"`
	// Error is the message of the driver or the controller.
	Error string `json:"error,omitempty"`
	// Evidence names the objects and events that the finding is read from.
	Evidence []string `json:"evidence,omitempty"`
	// Do is a sentence of advice.
	Do string `json:"do,omitempty"`

	rank rank
}

// State summarizes a report.
type State string

// The states of a report.
const (
	// Fine: no finding.
	Fine State = "fine"
	// Waits: the findings may resolve without action.
	Waits State = "waits"
	// Stuck: a person has to act.
	Stuck State = "stuck"
	// Unknown: no finding, and some objects could not be read.
	Unknown State = "unknown"
)

// stuck reports whether a finding stays until a person acts: something is
// missing or wrong, or a call fails with a code that retries do not resolve.
func (f Finding) stuck() bool {
	switch f.rank {
	case cause:
		return true
	case failing:
		return !slices.Contains([]string{"Aborted", "Canceled", "DeadlineExceeded", "Unavailable"}, f.Code)
	}
	return false
}

// rank orders findings: a cause comes before its effects.
type rank int

const (
	cause     rank = iota // something is missing or wrong, and the finding names it
	failing               // a call fails
	waiting               // a controller or a user has to act, and no fault is known
	following             // resolves when the other findings have
)

// Report is the answer.
type Report struct {
	Subject string `json:"subject"`
	State   State  `json:"state"`
	// Fine is the state of the subject without findings.
	Fine     string    `json:"fine,omitempty"`
	Findings []Finding `json:"findings,omitempty"`
	// Notes name the objects that could not be read.
	Notes []string `json:"notes,omitempty"`
}

// Answer is the first line: the first finding, or that there is none.
func (r Report) Answer() string {
	if len(r.Findings) == 0 {
		return r.Subject + ": " + r.Fine
	}
	return r.Subject + ": " + r.Findings[0].What
}

// Subject is the object that the question is about.
type Subject struct {
	// Kind is pod, pvc, pv, volume or snapshot; of a volume, Name is its handle.
	Kind, Namespace, Name string
}

// ParseSubject reads KIND/NAME with Kubernetes' names and short names of kinds.
func ParseSubject(text, namespace string) (Subject, error) {
	kind, name, found := strings.Cut(text, "/")
	if !found || name == "" {
		return Subject{}, fmt.Errorf("%q: want KIND/NAME, such as pvc/data", text)
	}
	for word, names := range map[string][]string{
		"pod":      {"pod", "pods", "po"},
		"pvc":      {"pvc", "claim", "persistentvolumeclaim", "persistentvolumeclaims"},
		"pv":       {"pv", "persistentvolume", "persistentvolumes"},
		"volume":   {"volume", "vol", "handle"},
		"snapshot": {"snapshot", "volumesnapshot", "volumesnapshots", "vs"},
	} {
		if slices.Contains(names, strings.ToLower(kind)) {
			s := Subject{Kind: word, Namespace: namespace, Name: name}
			if inner, own, has := strings.Cut(name, "/"); has && (word == "pod" || word == "pvc" || word == "snapshot") {
				s.Namespace, s.Name = inner, own
			}
			return s, s.check(text)
		}
	}
	return Subject{}, fmt.Errorf("%q: want pod/NAME, pvc/NAME, pv/NAME, volume/ID or snapshot/NAME", text)
}

// check rejects a text that is not an object's name: it would lead to another path
// of the API. A handle may be any text.
func (s Subject) check(text string) error {
	words := []string{s.Name, s.Namespace}
	switch s.Kind {
	case "volume":
		return nil
	case "pv":
		words = words[:1]
	}
	for _, word := range words {
		if problems := content.IsPathSegmentName(word); word == "" || len(problems) > 0 {
			return fmt.Errorf("%q: %q is not a name", text, word)
		}
	}
	return nil
}

// String is the subject in the form of messages.
func (s Subject) String() string {
	switch s.Kind {
	case "pv", "volume":
		return s.Kind + "/" + s.Name
	}
	return s.Kind + "/" + s.Name + " in namespace " + s.Namespace
}

// Ask reports what the subject waits for. It returns an error if objects cannot be read.
func Ask(ctx context.Context, reader Reader, subject Subject) (Report, error) {
	w := &walk{ctx: ctx, reader: reader, now: time.Now, report: Report{Subject: subject.String()},
		seen: map[string]bool{}, unreadable: map[Kind]bool{}}
	w.host, w.onHost = reader.(Host)
	switch subject.Kind {
	case "pod":
		w.podNamed(subject.Namespace, subject.Name)
	case "pvc":
		w.claimNamed(subject.Namespace, subject.Name, nil)
	case "pv":
		w.volumeNamed(subject.Name)
	case "snapshot":
		w.snapshotNamed(subject.Namespace, subject.Name)
	default:
		w.handle(subject.Name)
	}
	slices.SortStableFunc(w.report.Findings, func(a, b Finding) int { return int(a.rank) - int(b.rank) })
	w.conclude()
	return w.report, w.failed
}

// conclude sets the state, and adds the advice to abandon a deletion that is stuck.
func (w *walk) conclude() {
	w.report.State = Fine
	switch {
	case slices.ContainsFunc(w.report.Findings, Finding.stuck):
		w.report.State = Stuck
	case len(w.report.Findings) > 0:
		w.report.State = Waits
	}
	if first := w.first(); w.abandon != "" && first != nil && first.rank <= failing {
		first.Do = strings.TrimSpace(first.Do + " " + w.abandon)
	}
	switch {
	case len(w.report.Findings) > 0:
		w.report.Fine = "" // it was set for one object of several
	case w.report.Fine == "" && len(w.report.Notes) > 0:
		w.report.Fine = "what it waits for is unknown, because objects may not be read"
		w.report.State = Unknown
	case w.report.Fine == "":
		w.report.Fine = "found nothing that it waits for"
	case len(w.report.Notes) > 0:
		w.report.Fine += ", as far as objects may be read"
	}
}

// first returns the finding that is the answer, nil if there is none.
func (w *walk) first() *Finding {
	if len(w.report.Findings) == 0 {
		return nil
	}
	return &w.report.Findings[0]
}

// adviseAbandon sets the advice for an object that a host is deleting and whose
// driver may not return.
func (w *walk) adviseAbandon(kind, namespace, name string) {
	if !w.onHost {
		return
	}
	command := fmt.Sprintf("holdfast delete %s/%s", kind, name)
	if namespace != "" {
		command += " -n " + namespace
	}
	w.abandon = fmt.Sprintf("If its driver never returns, '%s --abandon' removes the object without the calls that only the driver can execute.", command)
}

// walk collects the findings of one call of Ask.
type walk struct {
	ctx    context.Context //nolint:containedctx // a walk lives as long as the call of Ask
	reader Reader
	host   Host
	onHost bool
	now    func() time.Time
	report Report
	seen   map[string]bool
	// unreadable are the kinds of which an object could not be read: an object of
	// them that is not found may exist.
	unreadable map[Kind]bool
	// abandon is the advice for a deletion that is stuck.
	abandon string
	failed  error
}

func (w *walk) add(r rank, f Finding) {
	f.rank = r
	if !w.once("finding " + f.What) {
		return
	}
	if advice := adviceFor(f.Code); f.Do == "" {
		f.Do = advice
	}
	w.report.Findings = append(w.report.Findings, f)
}

// absent adds the finding that an object is missing, unless its kind is unreadable.
func (w *walk) absent(kind Kind, f Finding) {
	if !w.unreadable[kind] {
		w.add(cause, f)
	}
}

// once reports whether it is called with a word for the first time.
func (w *walk) once(word string) bool {
	if w.seen[word] {
		return false
	}
	w.seen[word] = true
	return true
}

func (w *walk) fine(format string, arguments ...any) {
	if w.report.Fine == "" {
		w.report.Fine = fmt.Sprintf(format, arguments...)
	}
}

// readFailed keeps the first error, and adds a note for objects that may not be read.
func (w *walk) readFailed(what string, err error) {
	switch {
	case errors.Is(err, ErrForbidden):
		if w.once("note " + what) {
			w.report.Notes = append(w.report.Notes, "not allowed to read "+what)
		}
	case w.failed == nil:
		w.failed = fmt.Errorf("read %s: %w", what, err)
	}
}
