//go:build docs

package docs_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
	"github.com/holdfast-csi/holdfast/test/binary"
)

// limit is how long a page may take: it is there for a command that hangs.
const limit = 25 * time.Minute

var withCluster = flag.Bool("docs.cluster", false, "run the pages that start a Kubernetes on the scratch machine, and no others")

// TestPages_run runs the commands of each page from top to bottom in one shell,
// on a scratch machine: new namespaces for mounts and processes, and
// copies of the directories that commands write to.
func TestPages_run(t *testing.T) {
	nodetest.RequireRoot(t)
	holdfast, err := binary.Build(t.Context(), t.TempDir(), "holdfast")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range pages(t) {
		text := script(read(t, name))
		if text == "" {
			continue // TestPages_everyCommandIsRunOrSaysWhyNot lists why
		}
		t.Run(strings.TrimSuffix(filepath.Base(name), ".md"), func(t *testing.T) { newMachine(t, holdfast).run(text) })
	}
}

// script has the commands of a page; empty if none of them runs.
func script(blocks []block) string {
	var text strings.Builder
	ran := false
	for i, b := range blocks {
		if b.reason != "" || b.cluster != *withCluster || !b.runs() && b.file == "" {
			continue
		}
		ran = true
		fmt.Fprintf(&text, "\nbegin '%s' %d\n%s", b, i, b.before)
		switch {
		case b.file != "":
			fmt.Fprintf(&text, "mkdir -p \"$(dirname '%s')\"\ncat > '%s' <<'END-OF-FILE'\n%sEND-OF-FILE\n", b.file, b.file, b.text)
		case b.background != "":
			fmt.Fprintf(&text, "( %s ) & waitfor $! '%s'\n", b.commands(), b.background)
		case b.exits != 0:
			fmt.Fprintf(&text, "set +e\n%scode=$?\nset -e\nexits $code %d\n", b.commands(), b.exits)
		default:
			text.WriteString(b.commands())
		}
		text.WriteString("end\n")
		for _, word := range b.prints {
			fmt.Fprintf(&text, "prints '%s'\n", word)
		}
	}
	if !ran {
		return ""
	}
	return text.String()
}

// machine is a scratch machine below a directory.
type machine struct {
	*testing.T
	directory, holdfast string
}

func newMachine(t *testing.T, holdfast string) machine {
	directory := nodetest.Dir(t)
	m := machine{t, directory, holdfast}
	t.Cleanup(m.detachLoops)
	return m
}

func (m machine) run(text string) {
	path := filepath.Join(m.directory, "page.sh")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		m.Fatal(err)
	}
	tree, err := filepath.Abs("../..")
	if err != nil {
		m.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(m.Context(), limit)
	defer cancel()
	// The end of the first process of the namespace ends all others.
	command := exec.CommandContext(ctx, "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--mount-proc", "--kill-child",
		"bash", filepath.Join(tree, "test/docs/machine"), path, m.directory, tree, m.holdfast)
	command.Env = append(os.Environ(), m.caches()...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, err := command.CombinedOutput()
	if err != nil {
		m.Fatalf("%v\n%s", err, output)
	}
	m.Logf("%s", output)
}

// caches keep compiled packages: the scratch machine has another home directory.
func (m machine) caches() (variables []string) {
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		value, err := exec.CommandContext(m.Context(), "go", "env", name).Output()
		if err != nil {
			m.Fatalf("go env %s: %v", name, err)
		}
		variables = append(variables, name+"="+strings.TrimSpace(string(value)))
	}
	return variables
}

// detachLoops takes the devices away whose files are below the directory: a page
// may end while its volumes are in use.
func (m machine) detachLoops() {
	err := filepath.WalkDir(m.directory, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		loops, err := blockdev.LoopsOf(file)
		for i := range loops {
			if err := loops[i].Detach(); err != nil {
				return err
			}
		}
		return err
	})
	if err != nil {
		m.Errorf("detach the loop devices of the page: %v", err)
	}
}
