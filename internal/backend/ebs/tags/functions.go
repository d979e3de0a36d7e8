package tags

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// function computes a value from arguments: strings, ints, float64s and bools.
type function struct {
	least, most int // number of arguments; most is 0 if it has no bound
	call        func(arguments []any) (any, error)
}

// functions are the functions of a template except "and" and "or", which do not evaluate
// all arguments. index and lastIndex search for a text in another one, unlike the index
// of text/template.
func functions() map[string]function {
	texts := func(n int, call func(t []string) any) function {
		return function{n, n, func(arguments []any) (any, error) {
			given, err := textsOf(arguments)
			if err != nil {
				return nil, err
			}
			return call(given), nil
		}}
	}
	return map[string]function{
		"field": {3, 3, field}, "substring": {3, 3, substring}, "slice": {1, 3, slice},
		"toUpper":   texts(1, func(t []string) any { return strings.ToUpper(t[0]) }),
		"toLower":   texts(1, func(t []string) any { return strings.ToLower(t[0]) }),
		"len":       texts(1, func(t []string) any { return len(t[0]) }),
		"contains":  texts(2, func(t []string) any { return strings.Contains(t[1], t[0]) }),
		"index":     texts(2, func(t []string) any { return strings.Index(t[1], t[0]) }),
		"lastIndex": texts(2, func(t []string) any { return strings.LastIndex(t[1], t[0]) }),
		"print":     {0, 0, func(a []any) (any, error) { return fmt.Sprint(a...), nil }},
		"println":   {0, 0, func(a []any) (any, error) { return fmt.Sprintln(a...), nil }},
		"printf":    {1, 0, printf},
		"not":       {1, 1, func(a []any) (any, error) { return !truth(a[0]), nil }},
		"eq":        {2, 0, equal},
		"ne":        comparing(func(c int) bool { return c != 0 }),
		"lt":        comparing(func(c int) bool { return c < 0 }),
		"le":        comparing(func(c int) bool { return c <= 0 }),
		"gt":        comparing(func(c int) bool { return c > 0 }),
		"ge":        comparing(func(c int) bool { return c >= 0 }),
	}
}

// allowed are the names of all functions that a template may use.
func allowed() []string {
	names := append(slices.Collect(maps.Keys(functions())), "and", "or")
	slices.Sort(names)
	return names
}

// foreign are functions of text/template that tags do not have. The parser must know them
// so that compile can name them in its error.
func foreign() []string { return []string{"call", "html", "js", "urlquery"} }

func textsOf(arguments []any) ([]string, error) {
	texts := make([]string, len(arguments))
	for i, a := range arguments {
		text, ok := a.(string)
		if !ok {
			return nil, fmt.Errorf("%v is not a text", a)
		}
		texts[i] = text
	}
	return texts, nil
}

func number(a any) (int, error) {
	n, ok := a.(int)
	if !ok {
		return 0, fmt.Errorf("%v is not a whole number", a)
	}
	return n, nil
}

// field is the part of a text at an index, counted from 0, between delimiters:
// field DELIMITER INDEX TEXT.
func field(a []any) (any, error) {
	index, err := number(a[1])
	if err != nil {
		return nil, err
	}
	texts, err := textsOf([]any{a[0], a[2]})
	if err != nil {
		return nil, err
	}
	parts := strings.Split(texts[1], texts[0])
	if index < 0 || index >= len(parts) {
		return nil, fmt.Errorf("field %d of %q, which has %d", index, texts[1], len(parts))
	}
	return parts[index], nil
}

// substring is the text from start to before end, in bytes: substring START END TEXT.
func substring(a []any) (any, error) { return slice([]any{a[2], a[0], a[1]}) }

// slice is that of text/template: slice TEXT [START [END]].
func slice(a []any) (any, error) {
	texts, err := textsOf(a[:1])
	if err != nil {
		return nil, err
	}
	bounds := [2]int{0, len(texts[0])}
	for i, given := range a[1:] {
		if bounds[i], err = number(given); err != nil {
			return nil, err
		}
	}
	if bounds[0] < 0 || bounds[1] < bounds[0] || bounds[1] > len(texts[0]) {
		return nil, fmt.Errorf("bytes %d to %d of %q, which has %d", bounds[0], bounds[1], texts[0], len(texts[0]))
	}
	return texts[0][bounds[0]:bounds[1]], nil
}

// longWidth finds widths and precisions of more than three digits, or given by
// an argument.
var longWidth = regexp.MustCompile(`%[^a-zA-Z%]*([0-9]{4}|\*)`)

// printf rejects formats that result in very long texts.
func printf(a []any) (any, error) {
	format, ok := a[0].(string)
	if !ok {
		return nil, fmt.Errorf("%v is not a format", a[0])
	}
	if longWidth.MatchString(format) {
		return nil, fmt.Errorf("printf %q has a width that is too large", format)
	}
	return fmt.Sprintf(format, a[1:]...), nil
}

// truth is that of text/template: it is false for "", 0 and false.
func truth(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case string:
		return v != ""
	case int:
		return v != 0
	case float64:
		return v != 0
	}
	return false
}

// equal reports whether the first argument equals one of the others.
func equal(a []any) (any, error) {
	for _, other := range a[1:] {
		c, err := compare(a[0], other)
		if err != nil {
			return nil, err
		}
		if c == 0 {
			return true, nil
		}
	}
	return false, nil
}

func comparing(holds func(int) bool) function {
	return function{2, 2, func(a []any) (any, error) {
		c, err := compare(a[0], a[1])
		return holds(c), err
	}}
}

// compare compares two values of one type.
func compare(a, b any) (int, error) {
	switch a := a.(type) {
	case string:
		if b, ok := b.(string); ok {
			return strings.Compare(a, b), nil
		}
	case int:
		if b, ok := b.(int); ok {
			return cmp.Compare(a, b), nil
		}
	case float64:
		if b, ok := b.(float64); ok {
			return cmp.Compare(a, b), nil
		}
	case bool:
		if b, ok := b.(bool); ok && a == b {
			return 0, nil
		} else if ok {
			return 1, nil
		}
	}
	return 0, fmt.Errorf("%w: %v and %v are of different kinds", backend.ErrInvalid, a, b)
}
