package intent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// changeSuffix ends the entry of a change; the entry of an intent is its key.
const changeSuffix = ".change"

// envelope is the text of an entry: an intent, or what has changed in one.
type envelope struct {
	// ID is unique for the key. IDs are ordered as the writes of one process are, and
	// those of several as their clocks are.
	ID string `json:"id"`
	// Of is the ID of the intent that a change is for. The change counts as long as
	// that intent is stored.
	Of string `json:"of,omitempty"`
	// Part names the shared part of Intent.
	Part   string          `json:"part,omitempty"`
	Intent json.RawMessage `json:"intent,omitempty"`
	// Change has the fields in which an intent differs; null for one that it lacks.
	Change map[string]json.RawMessage `json:"change,omitempty"`
}

// record is an entry of a slot.
type record struct {
	slot       *slot
	entry, key string
	change     bool
	text       string
	envelope
	err        error // why it cannot be read
	superseded bool  // a later change has what this one has
}

func newRecord(s *slot, entry, text string) *record {
	r := &record{slot: s, entry: entry, key: entry, text: text}
	if s.shard {
		r.Intent = json.RawMessage(text)
		return r
	}
	r.key, r.change = strings.CutSuffix(entry, changeSuffix)
	r.err = json.Unmarshal([]byte(text), &r.envelope)
	if r.err == nil && (r.ID == "" || r.change != (r.Of != "") || !r.change && r.Intent == nil) {
		r.err = errors.New("it is neither an intent nor a change of one")
	}
	return r
}

// body is an intent as it is stored.
type body struct {
	text  string // JSON without the shared part
	part  string // the part's name
	bytes []byte
}

func (s *Store[T]) encode(intent T) (body, error) {
	var b body
	if s.kind.Split != nil {
		if intent, b.bytes = s.kind.Split(intent); b.bytes != nil {
			b.part = partName(b.bytes)
		}
	}
	text, err := json.Marshal(intent)
	b.text = string(text)
	return b, err
}

// entryOf returns the text of an intent's entry in a slot, with a reference to the shared
// part if that is stored in the same store.
func (s *Store[T]) entryOf(in *slot, id string, c *change[T]) string {
	if _, stored := s.view.bytes(part{in.node, c.body.part}); stored && !in.shard || c.body.part == "" && !in.shard {
		return marshal(envelope{ID: id, Part: c.body.part, Intent: json.RawMessage(c.body.text)})
	}
	whole, _ := json.Marshal(c.intent) // as in Put
	if in.shard {
		return string(whole)
	}
	return marshal(envelope{ID: id, Intent: whole})
}

func marshal(e envelope) string {
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings and valid JSON
	}
	return string(text)
}

// changeOf returns the envelope of a change of a stored intent.
func changeOf(base *record, id string, next body) envelope {
	change := envelope{ID: id, Of: base.ID}
	fields, ok := diff(base.Intent, []byte(next.text))
	if !ok || next.part != base.Part {
		change.Part, change.Intent = next.part, json.RawMessage(next.text)
		return change
	}
	change.Change = fields
	return change
}

// diff returns the fields in which next differs from base; null for one that next lacks.
// ok is false if one of them is not a JSON object.
func diff(base, next []byte) (fields map[string]json.RawMessage, ok bool) {
	var before, after map[string]json.RawMessage
	if json.Unmarshal(base, &before) != nil || json.Unmarshal(next, &after) != nil {
		return nil, false
	}
	fields = map[string]json.RawMessage{}
	for name, value := range after {
		if !bytes.Equal(before[name], value) {
			fields[name] = value
		}
	}
	for name := range before {
		if _, kept := after[name]; !kept {
			fields[name] = json.RawMessage("null")
		}
	}
	return fields, true
}

// apply is the inverse of diff.
func apply(base []byte, fields map[string]json.RawMessage) ([]byte, error) {
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(base, &all); err != nil {
		return nil, err
	}
	for name, value := range fields {
		if string(value) == "null" {
			delete(all, name)
		} else {
			all[name] = value
		}
	}
	return json.Marshal(all)
}

// decode returns the intent of a record with its changes, in their order.
func (s *Store[T]) decode(v *view, base *record) (intent T, err error) {
	if base.err != nil {
		return intent, base.err
	}
	if intent, err = s.join(v, base.Intent, base.part()); err != nil {
		return intent, err
	}
	for _, change := range v.changes(base) {
		if change.err != nil {
			return intent, fmt.Errorf("entry %s of ConfigMap %s: %w", change.entry, change.slot.name, change.err)
		}
		text, shared := []byte(change.Intent), change.part()
		if text == nil {
			if text, err = apply(base.Intent, change.Change); err != nil {
				return intent, err
			}
			shared = base.part()
		}
		next, err := s.join(v, text, shared)
		if err != nil {
			return intent, err
		}
		intent = s.kind.Merge(intent, next)
	}
	return intent, nil
}

func (s *Store[T]) join(v *view, text []byte, shared part) (intent T, err error) {
	if err := json.Unmarshal(text, &intent); err != nil {
		return intent, err
	}
	if shared.name == "" {
		return intent, nil
	}
	bytes, found := v.bytes(shared)
	if !found {
		return intent, fmt.Errorf("its part %s does not exist or is damaged", shared.name)
	}
	return s.kind.Join(intent, bytes), nil
}

// read returns the intent of a key, with all its copies merged.
func (s *Store[T]) read(v *view, key string) (intent T, err error) {
	for i, base := range v.intents(key, s.options.Node) {
		one, err := s.decode(v, base)
		if err != nil {
			return one, fmt.Errorf("entry %s of ConfigMap %s of intents is damaged: %w", base.entry, base.slot.name, err)
		}
		if i > 0 {
			one = s.kind.Merge(intent, one)
		}
		intent = one
	}
	return intent, nil
}
