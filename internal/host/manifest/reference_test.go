package manifest

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// page is the reference page that has Reference between two marks.
const (
	page      = "../../../docs/reference/objects.md"
	pageBegin = "<!-- fields: begin; TestReference_isInTheDocumentation writes this with UPDATE=1 -->\n"
	pageEnd   = "<!-- fields: end -->\n"
)

func TestReference_isInTheDocumentation(t *testing.T) {
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(data), pageBegin)
	ok, after, ends := strings.Cut(rest, pageEnd)
	if !begins || !ends {
		t.Fatalf("%s has no marks for the tables", page)
	}
	want := "\n" + Reference()
	if ok == want {
		return
	}
	if os.Getenv("UPDATE") == "" {
		t.Fatalf("%s differs from the code; run this test with UPDATE=1", page)
	}
	if err := os.WriteFile(page, []byte(before+pageBegin+want+pageEnd+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestContract_decidesAboutEveryFieldOfTheAPI walks the Go types, so that a
// field that is new in the API cannot be forgotten.
func TestContract_decidesAboutEveryFieldOfTheAPI(t *testing.T) {
	for _, kind := range Kinds() {
		w := typeWalk{table: contractOf(kind.Kind), found: map[string]bool{}}
		w.visit("", reflect.TypeOf(kind.New()).Elem(), false)
		for _, path := range w.undecided {
			t.Errorf("%s: %s: nothing says whether it is honoured, without a meaning or refused", kind.Kind, path)
		}
		for path := range w.table.rules {
			if !w.found[path] && !isKey(path) {
				t.Errorf("%s: %s: there is a rule, but no such field", kind.Kind, path)
			}
		}
	}
}

// isKey reports whether a path ends in a map's key.
func isKey(path string) bool {
	return strings.HasSuffix(path, ".requests.storage") || strings.HasSuffix(path, ".limits.storage")
}

type typeWalk struct {
	table     *contract
	found     map[string]bool
	undecided []string
}

// visit descends until a rule covers the field and all below it. decided reports
// whether a rule above does, which rules below only refine.
func (w *typeWalk) visit(path string, of reflect.Type, decided bool) {
	if _, listed := w.table.rules[path]; listed {
		w.found[path] = true
		decided = true
	}
	if !w.table.covers(path) || isLeaf(of) {
		if !decided {
			w.undecided = append(w.undecided, path)
		}
		return
	}
	switch of.Kind() {
	case reflect.Pointer:
		w.visit(path, of.Elem(), decided)
	case reflect.Slice:
		w.visit(path+"[]", of.Elem(), decided)
	case reflect.Struct:
		for i := range of.NumField() {
			w.visitField(path, of.Field(i), decided)
		}
	default:
		if !decided {
			w.undecided = append(w.undecided, path)
		}
	}
}

func (w *typeWalk) visitField(path string, field reflect.StructField, decided bool) {
	options := strings.Split(field.Tag.Get("json"), ",")
	switch name := options[0]; {
	case name == "-":
	case name == "" && (field.Anonymous || slices.Contains(options, "inline")):
		w.visit(path, field.Type, decided)
	default:
		w.visit(join(path, name), field.Type, decided)
	}
}

// isLeaf reports whether a type writes itself as one value.
func isLeaf(of reflect.Type) bool {
	marshaler := reflect.TypeFor[interface{ MarshalJSON() ([]byte, error) }]()
	return of.Kind() != reflect.Struct && of.Kind() != reflect.Pointer && of.Kind() != reflect.Slice || of.Implements(marshaler)
}
