package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestGet_printsFieldsByTheirPaths(t *testing.T) {
	h := startTestHost(t)
	for name, size := range map[string]string{"a": "10Gi", "b": "900Mi", "c": "2Gi"} {
		pvc := pendingClaim(name)
		pvc.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		pvc.Generation = int64(len(size))
		h.put(t, pvc)
	}
	file := filepath.Join(t.TempDir(), "names.tmpl")
	if err := os.WriteFile(file, []byte("{{range .items}}{{.metadata.name}};{{end}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	const size = ".spec.resources.requests.storage"
	cases := []struct {
		arguments []string
		code      int
		want      string
	}{
		{[]string{"get", "pvc", "-o", "name", "--sort-by=" + size}, 0, "persistentvolumeclaim/b\npersistentvolumeclaim/c\npersistentvolumeclaim/a\n"},
		{[]string{"get", "pvc", "a", "-o", "jsonpath={" + size + "} {.metadata.generation} {.spec.none}"}, 0, "10Gi 4 "},
		{[]string{"get", "pvc", "-o", "jsonpath={range .items[*]}{.metadata.name}{\"\\n\"}{end}"}, 0, "a\nb\nc\n"},
		{[]string{"get", "pvc", "-o", "custom-columns=WHO:.metadata.name,SIZE:{" + size + "},VOLUME:spec.volumeName"}, 0,
			"WHO   SIZE    VOLUME\na     10Gi    <none>\nb     900Mi   <none>\nc     2Gi     <none>\n"},
		{[]string{"get", "pvc", "-o", "custom-columns=WHO:.metadata.name", "--no-headers", "--sort-by=metadata.generation"}, 0, "c\na\nb\n"},
		{[]string{"get", "pvc", "a", "-o", "go-template={{.spec.resources.requests.storage}} {{.metadata.generation}} {{.spec.none}}"}, 0, "10Gi 4 <no value>"},
		{[]string{"get", "pvc", "-o", `go-template={{range $i, $c := .items}}{{if $i}},{{end}}{{$c.metadata.name}}{{end}}`, "--sort-by=" + size}, 0, "b,c,a"},
		{[]string{"get", "pvc", "-o", "go-template-file=" + file}, 0, "a;b;c;"},
		{[]string{"get", "pvc", "-o", "go-template={{.a"}, 2, "-o go-template: template: output:1: unclosed action"},
		{[]string{"get", "pvc", "-o", "go-template={{.kind.x}}"}, 1, "cannot evaluate field x of a string"},
		{[]string{"get", "pvc", "-o", "go-template-file=/no/such/file"}, 2, "-o go-template-file: open /no/such/file"},
		{[]string{"get", "drivers", "-o", "go-template={{.}}"}, 2, "drivers are not objects"},
		{[]string{"get", "pvc", "-o", "jsonpath={.a"}, 2, "-o jsonpath"},
		{[]string{"get", "pvc", "-o", "custom-columns=WHO"}, 2, `"WHO" is not HEADER:PATH`},
		{[]string{"get", "pvc", "--sort-by={}"}, 2, "is not the path of a field"},
		{[]string{"get", "pvc", "--sort-by=.a", "-w"}, 2, "--sort-by and --watch"},
	}
	for _, c := range cases {
		t.Run(strings.Join(c.arguments, " "), func(t *testing.T) {
			code, stdout, stderr := h.run(t, c.arguments...)
			if code != c.code || code == 0 && stdout != c.want || code != 0 && !strings.Contains(stderr, c.want) {
				t.Errorf("exit code %d\n%q\n%s\nwant %q", code, stdout, stderr, c.want)
			}
		})
	}
}

// The order of numbers and texts does not depend on the order in which they came.
func TestCompareValues_isAnOrder(t *testing.T) {
	want := []string{"", "900Mi", "2Gi", "10Gi", "1a", "9a", "b"}
	given := slices.Clone(want)
	slices.Reverse(given)
	if slices.SortFunc(given, compareValues); !slices.Equal(given, want) {
		t.Errorf("sorted: %q, want %q", given, want)
	}
	for _, a := range want {
		for _, b := range want {
			for _, c := range want {
				if compareValues(a, b) <= 0 && compareValues(b, c) <= 0 && compareValues(a, c) > 0 {
					t.Errorf("%q ≤ %q ≤ %q, and %q > %q", a, b, c, a, c)
				}
			}
		}
	}
}
