package world

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of a describe's filters (EC2 API, Filter).
const (
	maxFilters      = 50
	maxFilterValues = 200
	maxFilterLength = 255
)

// filterTable has, by filter name, the values of a resource that are compared. A resource
// matches if one of them matches.
type filterTable[T any] map[string]func(*T) []string

// tagged returns the tags of a resource for the filters tag:<key>, tag-key and
// tag-value, nil for a resource that has none.
type tagged[T any] func(*T) tags

// compileFilters makes one test of all filters.
func compileFilters[T any](filters []Filter, table filterTable[T], tagsOf tagged[T]) (func(*T) bool, *Error) {
	if len(filters) > maxFilters {
		return nil, refuse("FilterLimitExceeded", "The maximum number of filters specified on a single call is %d.",
			maxFilters)
	}
	tests := make([]func(*T) bool, 0, len(filters))
	for _, f := range filters {
		if err := checkFilter(f); err != nil {
			return nil, err
		}
		values := valuesOf(f.Name, table, tagsOf)
		if values == nil {
			return nil, invalid("The filter '%s' is invalid", f.Name)
		}
		accepts := acceptor(f.Values)
		tests = append(tests, func(one *T) bool { return anyOf(values(one), accepts) })
	}
	return func(one *T) bool {
		for _, test := range tests {
			if !test(one) {
				return false
			}
		}
		return true
	}, nil
}

func checkFilter(f Filter) *Error {
	if f.Name == "" {
		return missing("Filter.Name")
	}
	if len(f.Values) == 0 {
		return missing("Filter.Value")
	}
	if len(f.Values) > maxFilterValues {
		return refuse("FilterLimitExceeded", "The maximum number of filter values specified on a single call is %d.",
			maxFilterValues)
	}
	for _, value := range f.Values {
		if utf8.RuneCountInString(value) > maxFilterLength {
			return invalid("A value of the filter '%s' is longer than %d characters", f.Name, maxFilterLength)
		}
	}
	return nil
}

func valuesOf[T any](name string, table filterTable[T], tagsOf tagged[T]) func(*T) []string {
	if values, ok := table[name]; ok {
		return values
	}
	if tagsOf == nil {
		return nil
	}
	switch name {
	case "tag-key":
		return func(one *T) []string { return slices.Collect(maps.Keys(tagsOf(one))) }
	case "tag-value":
		return func(one *T) []string { return slices.Collect(maps.Values(tagsOf(one))) }
	}
	if key, isTag := strings.CutPrefix(name, "tag:"); isTag {
		return func(one *T) []string {
			if value, ok := tagsOf(one)[key]; ok {
				return []string{value}
			}
			return nil
		}
	}
	return nil
}

// acceptor tests for any of the values; those without wildcards are looked up.
func acceptor(values []string) func(string) bool {
	exact := map[string]bool{}
	var patterns []string
	for _, value := range values {
		if hasWildcard(value) {
			patterns = append(patterns, value)
		} else {
			exact[value] = true
		}
	}
	return func(s string) bool {
		return exact[s] || anyOf(patterns, func(p string) bool { return wildcard(p, s) })
	}
}

func hasWildcard(value string) bool { return strings.ContainsAny(value, `*?\`) }

// wildcard matches s against a pattern: * is any text, ? one character, and a
// backslash takes the special meaning of the next.
func wildcard(pattern, s string) bool {
	// Where to continue if the text after a * does not match: one character further.
	retryPattern, retryText := "", ""
	canRetry := false
	for s != "" || pattern != "" {
		if strings.HasPrefix(pattern, "*") {
			pattern = pattern[1:]
			retryPattern, retryText, canRetry = pattern, s, true
			continue
		}
		if rest, after, ok := one(pattern, s); ok {
			pattern, s = rest, after
			continue
		}
		if !canRetry || retryText == "" {
			return false
		}
		_, size := utf8.DecodeRuneInString(retryText)
		retryText = retryText[size:]
		pattern, s = retryPattern, retryText
	}
	return true
}

// one matches a single character.
func one(pattern, s string) (restOfPattern, restOfText string, ok bool) {
	if pattern == "" || s == "" {
		return pattern, s, false
	}
	got, size := utf8.DecodeRuneInString(s)
	want, width := utf8.DecodeRuneInString(pattern)
	if want == '\\' && len(pattern) > width {
		pattern = pattern[width:]
		want, width = utf8.DecodeRuneInString(pattern)
	} else if want == '?' {
		want = got
	}
	return pattern[width:], s[size:], want == got
}
