package cli

import (
	"strings"
	"testing"
)

func TestMistakes_areExplained(t *testing.T) {
	cases := []struct{ line, want string }{
		{"aply -f x", `unknown command "aply"; did you mean "apply"?`},
		{"descr pod/x", `did you mean "describe"?`},
		{"ps", `unknown command "ps"; did you mean "get pods"?`},
		{"ps --all", `unknown command "ps"; did you mean "get pods"?`},
		{"pvc", `did you mean "get persistentvolumeclaims"?`},
		{"port-forward web 8080:80", "port-forward is out of scope: the containers of a host share the machine's network"},
		{"port web", "connect to 127.0.0.1 and the port that the container listens on"},
		{"xyzzy", `unknown command "xyzzy"`},
		{"host chek", `did you mean "check"?`},
		{"systemd unt --for a.service", `unknown command "unt"; did you mean "unit"?`},
		{"get pvcs", `kind "pvcs" does not exist; did you mean "pvc"?`},
		{"get drivrs", `did you mean "drivers"?`},
		{"get deployments", `kind "deployments" does not exist; the kinds are`},
		{"get pvc --slector a=b", "unknown flag: --slector; did you mean --selector?"},
		{"get pvc --frobnicate", "unknown flag: --frobnicate\n"},
		{"get -q", "unknown shorthand flag: 'q'"},
	}
	for _, c := range cases {
		t.Run(c.line, func(t *testing.T) {
			code, _, stderr := run(t, strings.Fields(c.line)...)
			if code != exitUsage || !strings.Contains(stderr, c.want) {
				t.Errorf("exit code %d, %s\nwant %s", code, stderr, c.want)
			}
		})
	}
}

// Every command that a mistake leads to must exist, or the table is wrong.
func TestMistakes_leadToCommands(t *testing.T) {
	root := NewRoot("test")
	for word, meant := range otherWords() {
		if !isCommand(root, meant) {
			t.Errorf("%s: %q is not a command", word, meant)
		}
		if isCommand(root, word) {
			t.Errorf("%s is a command", word)
		}
	}
}

func TestEnvironment_namesTheHost(t *testing.T) {
	h, other := startTestHost(t), startTestHost(t)
	h.put(t, pendingClaim("here"))
	other.put(t, pendingClaim("there"))
	expectClaim := func(name string, arguments ...string) {
		t.Helper()
		if code, stdout, stderr := run(t, append([]string{"get", "pvc", "-o", "name"}, arguments...)...); stdout !=
			"persistentvolumeclaim/"+name+"\n" {
			t.Errorf("exit code %d, %s%s, want %s", code, stdout, stderr, name)
		}
	}
	t.Setenv("HOLDFAST_ROOT", h.root)
	expectClaim("here")
	expectClaim("there", "--root="+other.root)
	t.Setenv("HOLDFAST_HOST", other.root+"/host.sock")
	expectClaim("there")
	expectClaim("here", "--root="+h.root)
	expectClaim("here", "--host="+h.root+"/host.sock")
	c := hostClient{root: "/elsewhere", socket: other.root + "/host.sock"}
	if directory, err := c.directory(); err != nil || directory != other.root {
		t.Errorf("the host's directory is %s (%v), want %s", directory, err, other.root)
	}
}
