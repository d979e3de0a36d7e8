// Package quantity parses Kubernetes quantities, such as 10Gi, of untrusted texts.
// resource.ParseQuantity and the comparisons of its result compute powers of ten of any
// exponent: for 1e1000000000, they take minutes and gigabytes.
package quantity

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The bounds of a text. The largest suffix, E, is an exponent of 18.
const (
	longestText     = 100 // bytes
	largestExponent = 50
)

var errBounds = errors.New("not a quantity of a reasonable size, such as 10Gi")

// Parse is resource.ParseQuantity for texts within bounds.
func Parse(text string) (resource.Quantity, error) {
	if err := check(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}

func check(text string) error {
	if len(text) > longestText {
		return errBounds
	}
	text = strings.TrimSpace(text) // as Quantity.UnmarshalJSON does
	at := strings.LastIndexAny(text, "eE")
	if at < 0 || strings.Trim(text[at+1:], "+-0123456789") != "" || at == len(text)-1 {
		return nil // no exponent
	}
	if exponent, err := strconv.Atoi(text[at+1:]); err != nil || exponent < -largestExponent || exponent > largestExponent {
		return errBounds
	}
	return nil
}

// CheckJSON returns an error if JSON has a quantity out of bounds where the target, which
// it would be decoded into, has a resource.Quantity. JSON that does not decode is not its
// subject. The target may be nil.
func CheckJSON(data []byte, target any) error {
	if !suspicious(data) {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var tree any
	if decoder.Decode(&tree) != nil {
		return nil //nolint:nilerr // see above
	}
	return walk("", reflect.TypeOf(target), tree)
}

// suspicious reports whether any text in JSON could be out of bounds: most objects have
// none, and need not be decoded for it. An escape could hide one.
func suspicious(data []byte) bool {
	return bytes.Contains(data, []byte(`\u`)) || regexp.MustCompile(`[eE][+-]?[0-9]{2}|[0-9.]{90}`).Match(data)
}

// walk checks the value of a field by the field's type.
func walk(path string, t reflect.Type, value any) error {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch value := value.(type) {
	case string:
		return leaf(path, t, value)
	case json.Number:
		return leaf(path, t, string(value))
	case []any:
		return walkList(path, t, value)
	case map[string]any:
		return walkObject(path, t, value)
	}
	return nil
}

func leaf(path string, t reflect.Type, text string) error {
	if t != reflect.TypeFor[resource.Quantity]() {
		return nil
	}
	if err := check(text); err != nil {
		return fmt.Errorf("%s: %.100q is %w", path, text, err)
	}
	return nil
}

func walkList(path string, t reflect.Type, values []any) error {
	if t == nil || t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
		return nil
	}
	for i, value := range values {
		if err := walk(fmt.Sprintf("%s[%d]", path, i), t.Elem(), value); err != nil {
			return err
		}
	}
	return nil
}

func walkObject(path string, t reflect.Type, values map[string]any) error {
	if t == nil {
		return nil
	}
	if t.Kind() == reflect.Map {
		for key, value := range values {
			if err := walk(path+"."+key, t.Elem(), value); err != nil {
				return err
			}
		}
		return nil
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" && field.Anonymous {
			if err := walkObject(path, dereferenced(field.Type), values); err != nil {
				return err
			}
			continue
		}
		if err := walk(path+"."+name, field.Type, values[name]); err != nil {
			return err
		}
	}
	return nil
}

func dereferenced(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}
