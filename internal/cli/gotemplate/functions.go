package gotemplate

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// function is one that templates call, with the number of its arguments; most is 0 if
// there is no limit. Arguments that are missing are nil.
type function struct {
	least, most int
	call        func(arguments []any) (any, error)
}

// functions are those of text/template without and, or and call, and two of kubectl's.
func functions() map[string]function {
	return map[string]function{
		"print":    {0, 0, func(a []any) (any, error) { return fmt.Sprint(a...), nil }},
		"println":  {0, 0, func(a []any) (any, error) { return fmt.Sprintln(a...), nil }},
		"printf":   {1, 0, printf},
		"len":      {1, 1, func(a []any) (any, error) { return length(a[0]) }},
		"index":    {1, 0, func(a []any) (any, error) { return index(a[0], a[1:]) }},
		"slice":    {1, 4, func(a []any) (any, error) { return slice(a[0], a[1:]) }},
		"not":      {1, 1, func(a []any) (any, error) { return !truth(a[0]), nil }},
		"eq":       {1, 0, func(a []any) (any, error) { return equalAny(a[0], a[1:]) }},
		"ne":       {2, 2, func(a []any) (any, error) { equal, err := equalAny(a[0], a[1:]); return !equal, err }},
		"lt":       {2, 2, ordered(func(order int) bool { return order < 0 })},
		"le":       {2, 2, ordered(func(order int) bool { return order <= 0 })},
		"gt":       {2, 2, ordered(func(order int) bool { return order > 0 })},
		"ge":       {2, 2, ordered(func(order int) bool { return order >= 0 })},
		"html":     {0, 0, func(a []any) (any, error) { return escapeHTML(joined(a)), nil }},
		"js":       {0, 0, func(a []any) (any, error) { return escapeJS(joined(a)), nil }},
		"urlquery": {0, 0, func(a []any) (any, error) { return url.QueryEscape(joined(a)), nil }},

		"exists":       {1, 0, func(a []any) (any, error) { return exists(a[0], a[1:]), nil }},
		"base64decode": {1, 1, decode},
	}
}

// shown is a value as an action prints it.
func shown(value any) any {
	if _, missing := value.(none); missing || value == nil {
		return "<no value>"
	}
	return value
}

func kindOf(value any) string {
	switch value.(type) {
	case nil, none:
		return "null"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	}
	return "a number"
}

// truth reports whether a value is not the empty one of its kind.
func truth(value any) bool {
	switch value := value.(type) {
	case nil, none:
		return false
	case bool:
		return value
	case string:
		return value != ""
	case []any:
		return len(value) > 0
	case map[string]any:
		return len(value) > 0
	case float64:
		return value != 0
	}
	number, _ := integer(value)
	return number != 0
}

// integer reads the kinds of whole numbers: of JSON, of constants, of bytes in a string.
func integer(value any) (int64, bool) {
	switch value := value.(type) {
	case int64:
		return value, true
	case int:
		return int64(value), true
	case uint8:
		return int64(value), true
	}
	return 0, false
}

func printf(arguments []any) (any, error) {
	format, ok := arguments[0].(string)
	if !ok {
		return nil, fmt.Errorf("the format is %s", kindOf(arguments[0]))
	}
	return fmt.Sprintf(format, arguments[1:]...), nil
}

func length(value any) (int, error) {
	switch value := value.(type) {
	case string:
		return len(value), nil
	case []any:
		return len(value), nil
	case map[string]any:
		return len(value), nil
	}
	return 0, fmt.Errorf("%s has no length", kindOf(value))
}

// index is value[i][j]…; a key that a map lacks is null.
func index(value any, indices []any) (any, error) {
	if value == nil {
		return nil, errors.New("index of null")
	}
	for _, one := range indices {
		switch of := value.(type) {
		case string:
			at, err := position(one, len(of)-1)
			if err != nil {
				return nil, err
			}
			value = of[at]
		case []any:
			at, err := position(one, len(of)-1)
			if err != nil {
				return nil, err
			}
			value = of[at]
		case map[string]any:
			key, ok := one.(string)
			if !ok {
				return nil, fmt.Errorf("an object is indexed by strings, not by %s", kindOf(one))
			}
			value = of[key]
		default:
			return nil, fmt.Errorf("%s has no elements", kindOf(value))
		}
	}
	return value, nil
}

// position reads an index from 0 to highest.
func position(value any, highest int) (int, error) {
	at, ok := integer(value)
	if !ok {
		return 0, fmt.Errorf("an index is a whole number, not %s", kindOf(value))
	}
	if at < 0 || at > int64(highest) {
		return 0, fmt.Errorf("index out of range: %d", at)
	}
	return int(at), nil
}

// slice is value[i:j].
func slice(value any, indices []any) (any, error) {
	size, err := length(value)
	if _, isMap := value.(map[string]any); err != nil || isMap {
		return nil, fmt.Errorf("%s has no slices", kindOf(value))
	}
	bounds := [3]int{0, size, size}
	for i, one := range indices {
		if bounds[i], err = position(one, size); err != nil {
			return nil, err
		}
	}
	if bounds[0] > bounds[1] || bounds[1] > bounds[2] {
		return nil, fmt.Errorf("invalid slice indices: %v", indices)
	}
	list, isList := value.([]any)
	text, _ := value.(string)
	switch {
	case isList:
		return list[bounds[0]:bounds[1]:bounds[2]], nil
	case len(indices) == 3:
		return nil, errors.New("a string has no slices with three indices")
	}
	return text[bounds[0]:bounds[1]], nil
}

// equalAny reports whether a value equals one of several.
func equalAny(value any, others []any) (bool, error) {
	if len(others) == 0 {
		return false, errors.New("missing argument for comparison")
	}
	for _, other := range others {
		equal, err := equals(value, other)
		if equal || err != nil {
			return equal, err
		}
	}
	return false, nil
}

func equals(a, b any) (bool, error) {
	if a == nil || b == nil {
		return a == nil && b == nil, nil
	}
	if first, ok := a.(bool); ok {
		if second, ok := b.(bool); ok {
			return first == second, nil
		}
	}
	order, err := compare(a, b)
	return err == nil && order == 0, err
}

// compare orders two numbers of one kind, or two strings.
func compare(a, b any) (int, error) {
	switch first := a.(type) {
	case string:
		if second, ok := b.(string); ok {
			return strings.Compare(first, second), nil
		}
	case float64:
		if second, ok := b.(float64); ok {
			return cmp.Compare(first, second), nil
		}
	}
	first, isFirst := integer(a)
	second, isSecond := integer(b)
	if isFirst && isSecond {
		return cmp.Compare(first, second), nil
	}
	return 0, fmt.Errorf("incompatible types for comparison: %s (%T) and %s (%T)", kindOf(a), a, kindOf(b), b)
}

func ordered(fits func(order int) bool) func([]any) (any, error) {
	return func(arguments []any) (any, error) {
		order, err := compare(arguments[0], arguments[1])
		return err == nil && fits(order), err
	}
}

// exists reports whether index would find a value that is not null.
func exists(value any, indices []any) bool {
	found, err := index(value, indices)
	return err == nil && found != nil
}

func decode(arguments []any) (any, error) {
	text, ok := arguments[0].(string)
	if !ok {
		return nil, fmt.Errorf("%s is not a string", kindOf(arguments[0]))
	}
	data, err := base64.StdEncoding.DecodeString(text)
	return string(data), err
}

// joined is the text of the arguments, as actions print them.
func joined(arguments []any) string {
	texts := make([]any, 0, len(arguments))
	for _, argument := range arguments {
		texts = append(texts, shown(argument))
	}
	return fmt.Sprint(texts...)
}

func escapeHTML(text string) string {
	return strings.NewReplacer(`"`, "&#34;", "'", "&#39;", "&", "&amp;", "<", "&lt;", ">", "&gt;", "\x00", "\uFFFD").Replace(text)
}

// escapeJS makes a text that can stand in a string of JavaScript, in HTML too.
func escapeJS(text string) string {
	var escaped strings.Builder
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRuneInString(text[at:])
		switch {
		case strings.ContainsRune(`\'"`, r):
			escaped.WriteString(`\` + string(r))
		case strings.ContainsRune("<>&=", r) || r < ' ' || r >= utf8.RuneSelf && !unicode.IsPrint(r):
			fmt.Fprintf(&escaped, `\u%04X`, r)
		default:
			escaped.WriteString(text[at : at+size])
		}
		at += size
	}
	return escaped.String()
}
