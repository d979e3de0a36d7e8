package host_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// as runs the command as another user, with the groups.
func (m *machine) as(uid uint32, group uint32, arguments ...string) (string, error) {
	command := exec.Command(binary, append(arguments, "--root", m.root)...)
	command.Dir = "/"
	command.Env = []string{"PATH=/usr/bin:/bin", "HOME=/"}
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: group}}
	output, err := command.CombinedOutput()
	return string(output), err
}

// open lets every user execute the binary and connect to the socket.
func (m *machine) open() {
	m.t.Helper()
	for _, directory := range []string{filepath.Dir(binary), filepath.Dir(m.root)} {
		if err := os.Chmod(directory, 0o755); err != nil {
			m.t.Fatal(err)
		}
	}
}

const someone, theirGroup, otherGroup = 54321, 54322, 54323

func TestAccess_ofTheHostItselfIsRootsAlone(t *testing.T) {
	m := newMachine(t)
	m.open()
	m.start()
	if said, err := m.as(someone, theirGroup, "get", "csidrivers"); err == nil || !strings.Contains(said, "--socket-group") {
		t.Errorf("another user gets %v:\n%s", err, said)
	}
}

func TestAccess_isGivenToAGroup(t *testing.T) {
	m := newMachine(t)
	m.open()
	m.start("--socket-group=54322")
	if said, err := m.as(someone, theirGroup, "get", "csidrivers"); err != nil {
		t.Errorf("a member of the group: %v\n%s", err, said)
	}
	if said, err := m.as(someone, otherGroup, "get", "csidrivers"); err == nil {
		t.Errorf("another group reads:\n%s", said)
	}
}

func TestAccess_ofReadersIsToRead(t *testing.T) {
	m := newMachine(t)
	m.open()
	m.start("--socket-group=54322", "--socket-read-group=54323")
	m.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: there}\n")
	if said, err := m.as(someone, otherGroup, "get", "csidrivers"); err != nil {
		t.Errorf("a reader: %v\n%s", err, said)
	}
	if said, err := m.as(someone, otherGroup, "delete", "namespace", "there"); err == nil || !strings.Contains(said, "may read only") {
		t.Errorf("a reader deletes with %v:\n%s", err, said)
	}
	if said, err := m.as(someone, theirGroup, "delete", "namespace", "there"); err != nil {
		t.Errorf("a member of the group: %v\n%s", err, said)
	}
	if said, err := m.as(someone, someone, "get", "csidrivers"); err == nil {
		t.Errorf("another user reads:\n%s", said)
	}
}

// Modes of the files that only root may see: objects, and the output of pods and drivers.
func TestAccess_toFilesIsRootsAlone(t *testing.T) {
	m := newMachine(t)
	m.start()
	m.apply(strings.ReplaceAll(echoPod, "NAME", "talks"))
	m.until("the pod has ended", limitOfTest, func() bool { return m.phase("talks") == "Succeeded" })
	err := filepath.WalkDir(m.root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm()
		if mode&0o022 != 0 && entry.Type()&os.ModeSymlink == 0 {
			t.Errorf("%s may be written by others: %v", path, info.Mode())
		}
		if entry.Type().IsRegular() && mode&0o004 != 0 {
			t.Errorf("%s may be read by all: %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
