package cli

import (
	"strings"
	"testing"
)

func TestDescribe_choosesByLabel(t *testing.T) {
	h := startTestHost(t)
	for name, app := range map[string]string{"a": "web", "b": "web", "c": "db"} {
		pvc := pendingClaim(name)
		pvc.Labels = map[string]string{"app": app}
		h.put(t, pvc)
	}
	other := pendingClaim("d")
	other.Namespace, other.Labels = "shop", map[string]string{"app": "web"}
	h.put(t, other)
	for line, want := range map[string]string{
		"describe pvc":                      "a b c",
		"describe pvc -l app=web":           "a b",
		"describe pvc -l app!=web":          "c",
		"describe pvc -A -l app=web":        "a b d",
		"describe pvc,pods -l app=db":       "c",
		"describe pvc -l app=none":          "",
		"describe pvc -n shop -l app in(a)": "exit code 2",
		"describe pvc a -l app=web":         "exit code 2",
		"describe pvc/a -A":                 "exit code 2",
		"describe drivers -l app=web":       "exit code 2",
	} {
		code, stdout, stderr := h.run(t, strings.Fields(line)...)
		var names []string
		for text := range strings.Lines(stdout) {
			if name, ok := strings.CutPrefix(text, "Name:"); ok {
				names = append(names, strings.TrimSpace(name))
			}
		}
		got := strings.Join(names, " ")
		if code != 0 {
			got = "exit code 2"
		}
		if got != want || code != 0 && code != exitUsage {
			t.Errorf("%s: exit code %d, %q, want %q\n%s", line, code, got, want, stderr)
		}
	}
}
