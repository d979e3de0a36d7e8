//go:build monitoring

package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRunbooks_theirCommandsRun runs each command of holdfast that a runbook shows,
// against a host and against a cluster. Its answer may be any but that the command line is
// wrong.
func TestRunbooks_theirCommandsRun(t *testing.T) {
	m, k := newMachine(t), newKube(t)
	m.apply(claimOf("data", "local.holdfast.dev", "")+podOf("data"), "--wait")
	k.Add(claim("data"))
	k.provisioned("data")
	pages, err := filepath.Glob("../../../docs/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	tried := map[string]bool{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if !strings.HasPrefix(line, "holdfast ") || tried[line] {
				continue
			}
			tried[line] = true
			space := "default"
			if strings.Contains(line, "--kubeconfig") {
				space = namespace
			}
			arguments := strings.Fields(strings.NewReplacer("NAMESPACE", space, "NAME", "data", "~/.kube/config", k.Kubeconfig()).Replace(line))
			output, err := m.try(arguments[1:]...)
			var exit *exec.ExitError
			if err != nil && (!errors.As(err, &exit) || exit.ExitCode() < 3) {
				t.Errorf("%s: %s: %v\n%s", filepath.Base(page), line, err, output)
			}
		}
	}
	if len(tried) < 8 {
		t.Errorf("the runbooks have %d commands of holdfast: the pattern no longer fits them", len(tried))
	}
}
