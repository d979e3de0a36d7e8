package host_test

import (
	"strings"
	"testing"
)

// A command in a container has its volumes, environment and user, and its exit code passes
// through; the form with volumes is another one.
func TestExec_inAPodsContainer(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.apply(aConfigMap + "---\n" + aSecret + "---\n" + strings.Replace(aConfigured, "terminationGracePeriodSeconds: 1",
		"terminationGracePeriodSeconds: 1\n  securityContext: {runAsUser: 1234, runAsGroup: 1234}", 1))
	m.running("configured")
	code, said, complained := m.holdfast("exec", "pod/configured", "-c", "main", "--", "sh", "-c",
		`cat /etc/conf/app.conf; echo " $C_level $(id -u)"; echo err >&2; exit 7`)
	if code != 7 || said != "listen "+clearText+" 1234\n" || complained != "err\n" {
		t.Errorf("it ends with %d and says %q, %q", code, said, complained)
	}
	for want, words := range map[string][]string{
		"does not exist":                   {"exec", "none", "--", "true"},
		"has no such container":            {"exec", "configured", "-c", "other", "--", "true"},
		"no command is given":              {"exec", "configured"},
		"say which pod, or which volumes":  {"exec", "--", "true"},
		"put -- before the command":        {"exec", "configured", "ls", "--", "x"},
		"either a pod or --volume":         {"exec", "configured", "--volume", "data:/x", "--", "true"},
		"are of exec POD":                  {"exec", "-i", "--volume", "data:/x", "--", "true"},
		"standard input is not a terminal": {"exec", "-t", "configured", "--", "true"},
	} {
		if code, _, complained := m.holdfast(words[0], words[1:]...); code == 0 || !strings.Contains(complained, want) {
			t.Errorf("%v ends with %d and says %q; want %s", words, code, complained, want)
		}
	}
	m.mustRun("delete", "pod/configured")
	if code, _, complained := m.holdfast("exec", "configured", "--", "true"); code != 1 || !strings.Contains(complained, "does not exist") {
		t.Errorf("after its deletion: %d, %q", code, complained)
	}
}
