package host_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// aServer has a directory of its own, and one that other users of the machine cannot read.
const aServer = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 1234, runAsGroup: 1234, fsGroup: 1234}
  containers:
  - name: main
    command: [sh, -c, 'mkdir -p /srv/data/sub && echo from the pod > /srv/data/sub/file && ln -s /etc/passwd /srv/data/sub/link && exec sleep infinity']
    workingDir: /srv
    volumeMounts: [{name: data, mountPath: /srv/data}]
  - name: other
    command: [sleep, infinity]
  volumes: [{name: data, emptyDir: {}}]
`

// served starts a host with that pod.
func served(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t)
	m.start()
	m.apply(aServer)
	m.running("web")
	m.until("the container has its files", limitOfTest, func() bool {
		code, _, _ := m.holdfast("exec", "web", "-c", "main", "--", "test", "-L", "/srv/data/sub/link")
		return code == 0
	})
	t.Cleanup(func() { m.mustRun("delete", "pod/web") })
	return m
}

// local is a directory of this machine with files.
func local(t *testing.T, files map[string]string) string {
	t.Helper()
	directory := t.TempDir()
	for name, content := range files {
		name = filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return directory
}

func TestCp_bothWays(t *testing.T) {
	m := served(t)
	here := local(t, map[string]string{"conf/a": "from here", "conf/sub/b": "and this"})
	m.mustRun("cp", here+"/conf", "web:/srv/data/new", "-c", "main")
	m.mustRun("cp", here+"/conf/.", "default/web:data/new", "-c", "main")
	m.mustRun("cp", here+"/conf/a", "web:data/", "--container=main", "--no-preserve")
	said := m.mustRun("exec", "web", "-c", "main", "--", "sh", "-c", "cat data/new/sub/b data/a; stat -c ' %u %a' data/new/a data/a; ls -A data")
	if said != "and thisfrom here 1234 640\n 1234 644\na\nnew\nsub\n" {
		t.Errorf("the pod has %q", said)
	}
	code, _, complained := m.holdfast("cp", "web:data/sub", here, "-c", "main")
	if code != 0 || complained != "Warning: \"sub/link\" is left out: it is a link to \"/etc/passwd\"\n" {
		t.Errorf("it ends with %d and says %q", code, complained)
	}
	m.mustRun("cp", "web:data/sub/file", here+"/renamed", "-c", "main")
	m.mustRun("cp", "web:data/sub/link", here+"/followed", "-c", "main") // named by its user
	for name, want := range map[string]string{"sub/file": "from the pod\n", "renamed": "from the pod\n"} {
		if data, err := os.ReadFile(filepath.Join(here, name)); err != nil || string(data) != want {
			t.Errorf("%s is %q, %v", name, data, err)
		}
	}
	for _, name := range []string{"sub/link", "followed"} {
		if info, err := os.Lstat(filepath.Join(here, name)); err == nil && !info.Mode().IsRegular() {
			t.Errorf("%s is %v", name, info.Mode())
		}
	}
}

// A tar stream in a pipe, as GNU tar reads and writes it.
func TestCp_asAStream(t *testing.T) {
	m := served(t)
	here := local(t, map[string]string{"conf/a": "from here"})
	script := `set -e; tar -C "$1" -cf - conf | "$0" cp --root "$2" -c main - web:data; "$0" cp --root "$2" -c main web:data - | tar -C "$1" -xf -; cat "$1/data/conf/a" "$1/data/sub/file"; readlink "$1/data/sub/link"`
	out, err := exec.CommandContext(t.Context(), "bash", "-c", "set -o pipefail; "+script, binary, here, m.root).CombinedOutput()
	if err != nil || string(out) != "from herefrom the pod\n/etc/passwd\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestCp_saysWhatIsWrong(t *testing.T) {
	m := served(t)
	here := local(t, map[string]string{"a": "from here"})
	for want, words := range map[string][]string{
		"one of the two is POD:PATH":            {here, here},
		"are both in a pod":                     {"web:/a", "web:/b"},
		"has no path":                           {"web:", here},
		"say what to copy and where to":         {"web:/a"},
		"unexpected":                            {"web:/a", here, here},
		"does not exist":                        {"none:/a", here},
		"has no such container":                 {"web:/a", here, "-c", "none"},
		"is not a pod's name":                   {"a%b:/a", here},
		"is not the name of a namespace":        {"n s/web:/a", here},
		"no such file or directory":             {"web:/none", here, "-c", "main"},
		"permission denied":                     {"web:/etc/shadow", here, "-c", "main"},
		`open "/srv/none/" in the container`:    {here + "/a", "web:none/a", "-c", "main"},
		"is not a directory":                    {"web:data/sub/file", here + "/none/", "-c", "main"},
		here + "/none":                          {here + "/none", "web:data", "-c", "main"},
		"only files, directories and the":       {"/dev/null", "web:data", "-c", "main"},
		`"/srv/data/a/" in the container is no`: {here + "/a", "web:data/a/", "-c", "main"},
	} {
		code, _, complained := m.holdfast("cp", words...)
		if code == 0 || !strings.Contains(complained, want) || strings.Count(complained, "\n") > 2 {
			t.Errorf("%v ends with %d and says %q; want %s", words, code, complained, want)
		}
	}
	if names, err := filepath.Glob(here + "/*"); err != nil || len(names) != 1 {
		t.Errorf("there are %v, %v", names, err)
	}
}

// A copy that is interrupted says what stays, and the container has nothing of it.
func TestCp_interrupted(t *testing.T) {
	m := served(t)
	command := exec.Command(binary, "cp", "--root", m.root, "-c", "main", "-", "web:data/up")
	var complained bytes.Buffer
	command.Stderr = &complained
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	stream, err := exec.CommandContext(t.Context(), "tar", "-C", local(t, map[string]string{"large": strings.Repeat("x", 1<<20)}), "-cf", "-", "large").Output()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := input.Write(stream[:len(stream)/2]); err != nil {
		t.Fatal(err)
	}
	unfinished := func() bool {
		_, said, _ := m.holdfast("exec", "web", "-c", "main", "--", "ls", "-A", "data")
		return strings.Contains(said, ".holdfast-cp-")
	}
	m.until("the copy has begun", limitOfTest, unfinished)
	if err := command.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err == nil || !strings.Contains(complained.String(), "interrupted; what was not complete is removed") {
		t.Errorf("it ends with %v and says %q", err, &complained)
	}
	m.until("nothing of it is left", limitOfTest, func() bool { return !unfinished() })
}
