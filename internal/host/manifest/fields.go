package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// checkFields goes through everything that a document sets.
func checkFields(kind string, data []byte) (unusedFields, problems []string) {
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return nil, []string{err.Error()}
	}
	walk := walk{table: contractOf(kind)}
	walk.visit("", "", nil, tree)
	return walk.unused, walk.problems
}

type walk struct {
	table            *contract
	unused, problems []string
}

// visit inspects one value. pattern is its path with "[]" for every index;
// above is the rule of the nearest listed path above it, if there is one.
func (w *walk) visit(path, pattern string, above *rule, value any) {
	if isEmpty(value) && !isMeaningfulZero(pattern, value) || isAlreadySo(pattern, value) {
		return
	}
	if own, listed := w.table.rules[pattern]; listed {
		above = &own
	}
	if w.table.covers(pattern) {
		switch value := value.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(value)) {
				w.visit(join(path, key), join(pattern, key), above, value[key])
			}
			return
		case []any:
			for i, element := range value {
				w.visit(path+"["+strconv.Itoa(i)+"]", pattern+"[]", above, element)
			}
			return
		}
	}
	if above == nil {
		above = &rule{meaning: Refused}
	}
	w.apply(*above, path, value)
}

func (w *walk) apply(r rule, path string, value any) {
	switch r.meaning {
	case Unused:
		w.unused = append(w.unused, path+scalar(value))
	case Refused:
		note := r.note
		if note == "" {
			note = "leave it out"
		}
		w.problems = append(w.problems, path+": "+quoted(value)+"is not supported on one machine: "+note)
	case Honoured, Silent:
	}
}

// quoted returns a short value in quotes. (Fields that are refused have no secrets.)
func quoted(value any) string {
	if text, ok := value.(string); ok && len(text) < 80 {
		return fmt.Sprintf("%q ", text)
	}
	return ""
}

// scalar shows a short value, such as the name of an image.
func scalar(value any) string {
	if text, ok := value.(string); ok && len(text) < 80 {
		return fmt.Sprintf(" (%s)", text)
	}
	return ""
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// isEmpty reports whether a value says nothing: Kubernetes' types leave such
// fields out when they write.
func isEmpty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case bool:
		return !value
	case string:
		return value == ""
	case []any:
		return len(value) == 0
	case map[string]any:
		for _, element := range value {
			if !isEmpty(element) {
				return false
			}
		}
		return true
	}
	return false
}

// IsUnused reports whether a field, or one above it, has no meaning here.
func IsUnused(kind, pattern string) bool {
	table := contractOf(kind)
	for path := pattern; path != ""; path = path[:max(strings.LastIndexAny(path, ".["), 0)] {
		if rule, listed := table.rules[path]; listed {
			return rule.meaning == Unused
		}
	}
	return false
}
