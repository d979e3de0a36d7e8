//go:build wine && linux

package node

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// underWine runs a command of Windows to its end.
func underWine(t *testing.T, directory string, arguments ...string) (output string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	command := exec.CommandContext(ctx, inTree(t, "test/windows/wine/run.sh"), arguments...)
	command.Dir = directory
	// A file and no pipe: the service inherits it, and lives on.
	file, err := os.Create(filepath.Join(directory, "output"))
	must(t, err)
	defer file.Close()
	command.Stdout, command.Stderr = file, file
	err = command.Run()
	_, seekErr := file.Seek(0, io.SeekStart)
	must(t, seekErr)
	content, readErr := io.ReadAll(file)
	must(t, readErr)
	return string(content), err
}

// The scripts of the release install the service, replace it, and take it
// away, with nothing but cmd.exe and the program's own verbs.
func TestInstallScript_installsReplacesAndRemoves(t *testing.T) {
	directory := t.TempDir()
	scripts := inTree(t, "deploy/windows")
	copyTo(t, filepath.Join(scripts, "install.cmd"), directory)
	copyTo(t, filepath.Join(scripts, "uninstall.cmd"), directory)
	if output, err := underWine(t, directory, "cmd", "/c", "install.cmd"); err == nil {
		t.Errorf("it installed a program that is not there: %s", output)
	}
	copyTo(t, built(t, "windows", "cmd/csi-proxy", "HOLDFAST_CSI_PROXY"), directory)
	t.Cleanup(func() { _, _ = underWine(t, directory, "cmd", "/c", "uninstall.cmd") })
	for _, round := range []string{"first", "again"} {
		output, err := underWine(t, directory, "cmd", "/c", "install.cmd", `--kubelet-path=D:\k`)
		if err != nil || !strings.Contains(output, "state: running") || !strings.Contains(output, `--kubelet-path=D:\k`) ||
			!strings.Contains(output, "start: automatic") {
			t.Errorf("%s: %v: %s", round, err, output)
		}
		if stopped := strings.Contains(output, "has stopped"); stopped != (round == "again") {
			t.Errorf("%s: the old service has stopped: %t: %s", round, stopped, output)
		}
	}
	if output, err := underWine(t, directory, "cmd", "/c", "uninstall.cmd"); err != nil || !strings.Contains(output, "is not installed") {
		t.Errorf("%v: %s", err, output)
	}
	if output, err := underWine(t, directory, "cmd", "/c", "uninstall.cmd"); err == nil {
		t.Errorf("it was uninstalled twice: %s", output)
	}
}

func copyTo(t *testing.T, path, directory string) {
	t.Helper()
	content, err := os.ReadFile(path)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(directory, filepath.Base(path)), content, 0o600))
}
