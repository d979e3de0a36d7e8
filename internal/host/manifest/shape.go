package manifest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/quantity"
	"github.com/holdfast-csi/holdfast/internal/spelling"
)

// checkShape compares a document with the Go type that it will be decoded into,
// and names all that does not fit: by its path, and in the words of YAML. (The
// decoder stops at the first, and speaks of Go.) A value that should be a text is not
// quoted, as it may be a password, nor is any value of a Secret.
func checkShape(object any, data []byte) []string {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return []string{err.Error()}
	}
	_, secret := object.(*corev1.Secret)
	s := shape{secret: secret}
	s.visit("", reflect.TypeOf(object), tree)
	return s.problems
}

// checkType is checkShape of what says which kind a document is of.
func checkType(data []byte) []string {
	var tree any
	if err := json.Unmarshal(data, &tree); err != nil {
		return []string{err.Error()}
	}
	fields, ok := tree.(map[string]any)
	if !ok {
		return []string{fmt.Sprintf("it is %s, without the fields apiVersion, kind and metadata", kindOf(tree))}
	}
	var s shape
	for _, name := range []string{"apiVersion", "kind"} {
		switch value := fields[name]; value {
		case nil, "":
			s.wrong(name, "is missing")
		default:
			s.text(name, value)
		}
	}
	return s.problems
}

type shape struct {
	problems []string
	secret   bool
}

func (s *shape) wrong(path, format string, arguments ...any) {
	s.problems = append(s.problems, path+": "+fmt.Sprintf(format, arguments...))
}

// visit compares one value. null is valid for every type.
func (s *shape) visit(path string, t reflect.Type, value any) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil || s.scalar(path, t, value) {
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		if fields, ok := value.(map[string]any); ok {
			s.fields(path, t, fields)
			return
		}
		s.wrong(path, "is %s, where fields are wanted", kindOf(value))
	case reflect.Map:
		if entries, ok := value.(map[string]any); ok {
			for _, key := range slices.Sorted(maps.Keys(entries)) {
				s.visit(keyed(path, key), t.Elem(), entries[key])
			}
			return
		}
		s.wrong(path, "is %s, where keys with values are wanted", kindOf(value))
	case reflect.Slice:
		s.elements(path, t, value)
	}
}

func (s *shape) elements(path string, t reflect.Type, value any) {
	elements, ok := value.([]any)
	if !ok {
		s.wrong(path, "is %s, where a list is wanted: write [a, b], or each element on a line after \"- \"", kindOf(value))
		return
	}
	for i, element := range elements {
		s.visit(fmt.Sprintf("%s[%d]", path, i), t.Elem(), element)
	}
}

// fields goes through a struct by the names that its fields have in JSON.
func (s *shape) fields(path string, t reflect.Type, values map[string]any) {
	known := map[string]reflect.Type{}
	jsonFields(t, known)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if field, ok := known[key]; ok {
			s.visit(join(path, key), field, values[key])
			continue
		}
		problem := fmt.Sprintf("unknown field %q", join(path, key))
		if near := spelling.Nearest(key, slices.Collect(maps.Keys(known))); near != "" {
			problem += fmt.Sprintf("; did you mean %q?", near)
		}
		s.problems = append(s.problems, problem)
	}
}

func jsonFields(t reflect.Type, known map[string]reflect.Type) {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "" && field.Anonymous:
			jsonFields(field.Type, known)
		case name != "" && name != "-":
			known[name] = field.Type
		}
	}
}

// scalar compares a value with a type without parts, and reports whether the type is
// one.
func (s *shape) scalar(path string, t reflect.Type, value any) bool {
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		s.quantity(path, value)
		return true
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		if text, ok := value.(string); !ok || !isTime(text) {
			s.wrong(path, "is not a time: write it as 2006-01-02T15:04:05Z")
		}
		return true
	case reflect.TypeFor[[]byte]():
		s.bytes(path, value)
		return true
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return true // it has its own form
	}
	switch t.Kind() {
	case reflect.String:
		s.text(path, value)
	case reflect.Bool:
		s.boolean(path, value)
	case reflect.Int, reflect.Int32, reflect.Int64:
		s.number(path, t.Bits(), value)
	case reflect.Struct, reflect.Map, reflect.Slice:
		return false
	}
	return true
}

// aText describes a value in an error.
func (s *shape) aText(text string) string {
	if s.secret {
		return "is a text"
	}
	return fmt.Sprintf("%q is a text", text)
}

func (s *shape) text(path string, value any) {
	switch value.(type) {
	case string:
	case json.Number, bool:
		s.wrong(path, "is %s, where a text is wanted: put it in quotes", kindOf(value))
	default:
		s.wrong(path, "is %s, where a text is wanted", kindOf(value))
	}
}

func (s *shape) boolean(path string, value any) {
	switch value := value.(type) {
	case bool:
	case string:
		hint := ""
		if value == "true" || value == "false" {
			hint = ": write it without quotes"
		}
		s.wrong(path, "%s, where true or false is wanted%s", s.aText(value), hint)
	default:
		s.wrong(path, "is %s, where true or false is wanted", kindOf(value))
	}
}

func (s *shape) number(path string, bits int, value any) {
	text, quoted := value.(string)
	number, ok := value.(json.Number)
	if ok {
		text = number.String()
	}
	_, err := strconv.ParseInt(text, 10, bits)
	switch {
	case ok && err == nil:
	case ok:
		s.wrong(path, "%s is not a whole number of %d bits", text, bits)
	case quoted && err == nil:
		s.wrong(path, "%s, where a whole number is wanted: write it without quotes", s.aText(text))
	case quoted:
		s.wrong(path, "%s, where a whole number is wanted", s.aText(text))
	default:
		s.wrong(path, "is %s, where a whole number is wanted", kindOf(value))
	}
}

func (s *shape) quantity(path string, value any) {
	var text string
	switch value := value.(type) {
	case string:
		text = value
	case json.Number:
		text = value.String()
	default:
		s.wrong(path, "is %s, where a quantity is wanted, such as 512Mi or 10Gi", kindOf(value))
		return
	}
	if _, err := quantity.Parse(strings.TrimSpace(text)); err != nil {
		s.wrong(path, "%q is not a quantity: write a number with Ki, Mi, Gi, Ti, Pi or Ei (of 1024), with k, M, G, T, P or E (of 1000), or alone for bytes, such as 10Gi", text)
	}
}

func (s *shape) bytes(path string, value any) {
	text, ok := value.(string)
	if _, err := base64.StdEncoding.DecodeString(text); !ok || err != nil {
		s.wrong(path, "is not base64; texts as they are belong into a Secret's stringData, or a ConfigMap's data")
	}
}

func isTime(text string) bool {
	_, err := time.Parse(time.RFC3339Nano, text)
	return err == nil
}

// kindOf names the kind of a value without the value.
func kindOf(value any) string {
	switch value.(type) {
	case map[string]any:
		return "a map"
	case []any:
		return "a list"
	case string:
		return "a text"
	case bool:
		return "true or false"
	}
	return "a number"
}

// keyed is the path of a map's entry.
func keyed(path, key string) string {
	if strings.ContainsAny(key, "./[] ") {
		return path + "[" + key + "]"
	}
	return join(path, key)
}
