package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
)

// identity is equal for entries that are counted instead of being kept twice. It is
// the same for a step that started and one that is retried, so that the end of the
// step replaces its beginning.
func (e Entry) identity() string {
	var words []string
	if e.Event != nil {
		about := e.Event.About
		words = []string{"event", about.Kind, about.Key, about.UID, e.Event.Reason, e.Event.Message}
		if e.Event.Warning {
			words = append(words, "warning")
		}
		return digest(words)
	}
	return e.Step.identity(e.Step.Status)
}

func (s *StepEntry) identity(status Status) string {
	words := []string{"step", s.Step, s.Volume, s.Driver}
	switch status {
	case Started, Retrying:
		words = append(words, "runs")
	default:
		words = append(words, string(status), s.Code, s.Error, s.Detail)
	}
	for _, ref := range s.About {
		words = append(words, ref.Kind, ref.Key, ref.UID)
	}
	return digest(words)
}

// Ends returns the identity of the entry that this one ends, "" if none. Who follows the
// journal drops that one.
func (e Entry) Ends() string {
	if e.Step == nil || e.Step.Status == Started || e.Step.Status == Retrying {
		return ""
	}
	return e.Step.identity(Started)
}

// condensed is an entry that is to be written.
type condensed struct {
	Entry
	replaced string // Entry.Ends
	dropped  bool
}

// condense counts within a batch, and leaves out the steps that ended in it:
// most are over before they are written.
func condense(batch []Entry) []condensed {
	all := make([]condensed, 0, len(batch))
	at := make(map[string]int, len(batch))
	for _, entry := range batch {
		entry.ID = entry.identity()
		next := condensed{Entry: entry, replaced: entry.Ends()}
		for _, before := range []string{entry.ID, next.replaced} {
			i, known := at[before]
			if !known {
				continue
			}
			next.follow(all[i].Entry)
			all[i].dropped = true
			delete(at, before)
		}
		at[entry.ID] = len(all)
		all = append(all, next)
	}
	return slices.DeleteFunc(all, func(c condensed) bool { return c.dropped })
}

// digest is short, and no two lists of words share one by accident.
func digest(words []string) string {
	data, _ := json.Marshal(words) // a list of strings always has a JSON form
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:10])
}

// follow adds to this entry what an earlier one has that it replaces.
func (e *Entry) follow(earlier Entry) {
	switch {
	case e.ID == earlier.ID:
		e.count(earlier)
	case earlier.ID == e.Ends():
		e.resume(earlier)
	}
}

// resume adds the earlier attempts of a step that has not ended, or ends now.
func (e *Entry) resume(earlier Entry) {
	e.Step.Attempts += earlier.Step.Attempts
	if earlier.Step.First.Before(e.Step.First) {
		e.Step.First = earlier.Step.First
	}
}

// count adds the count of an earlier entry of the same identity to this one.
func (e *Entry) count(earlier Entry) {
	switch {
	case e.Event != nil && earlier.Event != nil:
		e.Event.Count += earlier.Event.Count
		e.Event.First = earlier.Event.First
	case e.Step != nil && earlier.Step != nil && e.Ends() != "":
		e.Step.Count += earlier.Step.Count
		e.Step.First = earlier.Step.First
	case e.Step != nil && earlier.Step != nil:
		e.resume(earlier)
	}
}

// clone keeps the journal's entry apart from the caller's slices.
func (e Entry) clone() Entry {
	if e.Step != nil {
		step := *e.Step
		step.About = slices.Clone(step.About)
		e.Step = &step
	}
	return e
}
