package surfaces

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const mark = "marker4711ofatest"

// A mark is found in each form in which a driver in memory repeats secrets, and in those
// texts written as JSON or as Go values.
func TestFind_inEveryForm(t *testing.T) {
	for _, form := range csidriver.Repeated(`it's "` + mark + `" & more`) {
		for _, text := range []string{form, fmt.Sprintf("%q", form), fmt.Sprintf("%q", fmt.Sprintf("%q", form)), strings.ReplaceAll(form, "\n", "\r\n")} {
			if Find([]byte("before "+text+" after"), mark) == "" {
				t.Errorf("nothing is found in %s", text)
			}
		}
	}
	if found := Find([]byte("marker4711 of another test"), "marker4711ofatestX"); found != "" {
		t.Errorf("found %q", found)
	}
}

// recorder is a test that fails.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, arguments ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, arguments...))
}

func TestSurfaces_hideAndShow(t *testing.T) {
	s := Surfaces{"a log": []byte("has " + mark), "a page": []byte("has nothing")}
	r := &recorder{TB: t}
	s.Hides(r, mark)
	if len(r.errors) != 1 || !strings.HasPrefix(r.errors[0], "a log has") {
		t.Errorf("hides: %q", r.errors)
	}
	r.errors = nil
	s.Shows(r, mark, "a log", "a page", "a trace", "a ")
	if len(r.errors) != 2 || !strings.Contains(r.errors[0], "a page") || !strings.Contains(r.errors[1], "a trace") {
		t.Errorf("shows: %q", r.errors)
	}
	if !bytes.Equal(s["a log"], []byte("has "+mark)) {
		t.Errorf("a search changed the surface to %q", s["a log"])
	}
}
