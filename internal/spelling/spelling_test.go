package spelling

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	known := []string{"pvc", "pods", "storageClassName", "apply", "get"}
	cases := []struct{ word, want string }{
		{"aply", "apply"},
		{"APPLY", "apply"},
		{"pvcs", "pvc"},
		{"storageclasName", "storageClassName"},
		{"gte", ""}, // two letters of three differ
		{"xyz", ""},
		{"", ""},
		{strings.Repeat("a", longest+1), ""},
	}
	for _, c := range cases {
		if got := Nearest(c.word, known); got != c.want {
			t.Errorf("Nearest(%q) is %q, want %q", c.word, got, c.want)
		}
	}
	if got := Nearest("ab", []string{"abd", "abc"}); got != "abc" {
		t.Errorf("of two that are equally near, it is %q", got)
	}
}
