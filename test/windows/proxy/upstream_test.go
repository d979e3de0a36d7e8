//go:build wine && windows

package proxy

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// client runs tests of test/windows/upstream, which are a program of their own.
func client(t *testing.T, p *process, arguments ...string) {
	t.Helper()
	path := os.Getenv("HOLDFAST_UPSTREAM")
	if path == "" {
		t.Fatal("HOLDFAST_UPSTREAM does not name the tests of upstream's client; use make test-windows")
	}
	command := exec.CommandContext(t.Context(), path, append([]string{"-test.v"}, arguments...)...)
	command.Env = append(os.Environ(), "HOLDFAST_SIMULATED=http://"+p.control)
	output, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "--- PASS") {
		t.Errorf("%v\n%s", err, output)
	}
}

// Drivers in the field are built with this client: every method of every version
// of every group.
func TestUpstreamClient_onTheSimulatedMachine(t *testing.T) {
	client(t, simulated(t).ready(t), "-test.skip=TestFilesystem_linksThatAreNotMade")
}

// The same on files that are wine's own, as far as wine goes: it makes no links.
func TestUpstreamClient_onWinesFiles(t *testing.T) {
	dir, flag := kubelet(t)
	t.Setenv("HOLDFAST_KUBELET", dir)
	client(t, launch(t, flag).ready(t), "-test.run=TestFilesystem_(directories|refusesPathsOutsideItsRoots|linksThatAreNotMade)")
}
