package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/quantity"
)

// merger makes of a stored object and the same as given the one to store.
type merger struct {
	state    *state
	stored   store.Object
	given    manifest.Object
	merged   store.Object
	warnings []string
	// create: the stored object must not change.
	create bool
}

// merge fills in merged. changed is false if it equals the stored object.
func (m *merger) merge() (changed bool, err error) {
	if err := m.checkIdentity(); err != nil {
		return false, err
	}
	before := clone(m.stored)
	manifest.SetDefaults(before) // other writers leave fields out
	m.merged = m.given.Object
	m.inherit(before)
	differences, err := compare(before, m.merged)
	if err != nil {
		return false, err
	}
	if m.create {
		return false, m.checkSame(differences)
	}
	// What the host offers must not stand in the way of a manifest: a user who never saw
	// that class would have to delete it first.
	if problems := m.checkDifferences(differences, before); len(problems) > 0 && !m.replacesOffered() {
		return false, refuse(api.ErrInvalid, errors.Join(problems...))
	}
	owned := ownedBy(m.stored.GetManagedFields())
	fields := keepOffered(m.given.Kind, m.stored, m.given.Object, ownedOf(m.given.Kind, m.merged))
	m.merged.SetLabels(mergeKeys(m.stored.GetLabels(), m.merged.GetLabels(), owned.Metadata.Labels))
	m.merged.SetAnnotations(mergeKeys(m.stored.GetAnnotations(), m.merged.GetAnnotations(), owned.Metadata.Annotations))
	keepStatus(m.merged, m.stored)
	m.merged.SetManagedFields(fields)
	if len(differences) > 0 {
		m.merged.SetGeneration(m.stored.GetGeneration() + 1)
	}
	return !isSame(m.merged, m.stored), nil
}

// replacesOffered reports whether a StorageClass of the user replaces the one that the
// host offers, as a CSIDriver does.
func (m *merger) replacesOffered() bool {
	return m.given.Kind.Kind == "StorageClass" && claim.IsUntouched(m.stored)
}

// checkIdentity refuses to change another object than the one that is meant.
func (m *merger) checkIdentity() error {
	conflict := func(format string, arguments ...any) error {
		return refuse(api.ErrConflict, fmt.Errorf("%s: %w", m.given.Name(), fmt.Errorf(format, arguments...)))
	}
	switch {
	case m.stored.GetDeletionTimestamp() != nil:
		return conflict("is being deleted; apply it again when it is gone")
	case m.given.GetUID() != "" && m.given.GetUID() != m.stored.GetUID():
		return conflict("metadata.uid: is that of another object of this name; the one here has %s", m.stored.GetUID())
	case m.given.GetResourceVersion() != "" && m.given.GetResourceVersion() != m.stored.GetResourceVersion():
		return conflict("metadata.resourceVersion: the object has changed since it was read (%s, now %s); read it again, or leave this field out",
			m.given.GetResourceVersion(), m.stored.GetResourceVersion())
	}
	return nil
}

// checkDifferences refuses each change of an immutable field, by its path.
func (m *merger) checkDifferences(differences []difference, before store.Object) (problems []error) {
	rules := changesOf(m.given.Kind.Kind)
	for _, d := range differences {
		rule := rules.of(d.pattern)
		if rule == fixed && manifest.IsUnused(m.given.Kind.Kind, d.pattern) {
			rule = free // it means nothing here, so it changes nothing
		}
		var text string
		switch rule {
		case free:
		case once:
			if d.had {
				text = m.cannotChange(d)
			}
		case asked:
			text = m.ask(d, before)
		case fixed:
			text = m.cannotChange(d)
		}
		if text != "" {
			problems = append(problems, fmt.Errorf("%s: %s: %s", m.given.Name(), d.path, text))
		}
	}
	return problems
}

// cannotChange says so, with the values unless they are a Secret's or a ConfigMap's.
func (m *merger) cannotChange(d difference) string {
	text := "cannot be changed"
	if old, desired := shown(d.before), shown(d.after); !store.IsSealed(m.given.Kind) && old != "" && desired != "" {
		text += fmt.Sprintf(" from %s to %s", old, desired)
	}
	if store.IsSealed(m.given.Kind) {
		return text + "; delete the " + m.given.Kind.Kind + " and apply it again"
	}
	return text + "; delete the object and apply it again to make it otherwise"
}

// shown is a short value for messages.
func shown(value any) string {
	switch value := value.(type) {
	case string, bool, float64:
		if text := fmt.Sprintf("%v", value); text != "" && len(text) < 80 {
			return strconv.Quote(text)
		}
	case nil:
		return "nothing"
	}
	return ""
}

// difference is one field in which two objects differ.
type difference struct {
	path    string
	pattern string // the path with "[]" for every index
	before  any
	after   any
	had     bool // the field was set before
}

// compare lists the fields, metadata and status aside, in which two objects
// differ, in the order of their names.
func compare(before, after store.Object) ([]difference, error) {
	first, err := tree(before)
	if err != nil {
		return nil, err
	}
	second, err := tree(after)
	if err != nil {
		return nil, err
	}
	var c comparison
	c.visit("", "", first, second)
	return c.differences, nil
}

func tree(object store.Object) (map[string]any, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", store.KeyOf(object), err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("read %s: %w", store.KeyOf(object), err)
	}
	for _, field := range []string{"metadata", "status", "kind", "apiVersion"} {
		delete(fields, field)
	}
	return fields, nil
}

type comparison struct{ differences []difference }

func (c *comparison) visit(path, pattern string, before, after any) {
	switch first := before.(type) {
	case map[string]any:
		if second, ok := after.(map[string]any); ok {
			keys := maps.Clone(first)
			maps.Copy(keys, second)
			for _, key := range slices.Sorted(maps.Keys(keys)) {
				c.visit(joinPath(path, key), joinPath(pattern, key), first[key], second[key])
			}
			return
		}
	case []any:
		if second, ok := after.([]any); ok && len(first) == len(second) {
			for i := range first {
				c.visit(path+"["+strconv.Itoa(i)+"]", pattern+"[]", first[i], second[i])
			}
			return
		}
	}
	if !isSameValue(pattern, before, after) {
		c.differences = append(c.differences, difference{path, pattern, before, after, !isNothing(before)})
	}
}

func joinPath(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// isSameValue treats an absent value as an empty one, and compares sizes as sizes.
func isSameValue(pattern string, before, after any) bool {
	if isNothing(before) && isNothing(after) {
		return true
	}
	first, ok := before.(string)
	second, too := after.(string)
	if ok && too && first != second && strings.HasSuffix(pattern, ".storage") {
		x, errX := quantity.Parse(first)
		y, errY := quantity.Parse(second)
		return errX == nil && errY == nil && x.Cmp(y) == 0
	}
	switch before.(type) {
	case map[string]any, []any:
		return false // the same would have been taken apart
	}
	switch after.(type) {
	case map[string]any, []any:
		return false
	}
	return before == after
}

// isNothing reports whether a value is absent or empty, all the way down.
func isNothing(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case map[string]any:
		for _, element := range value {
			if !isNothing(element) {
				return false
			}
		}
		return true
	case []any:
		return len(value) == 0
	}
	return false
}
