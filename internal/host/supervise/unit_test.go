package supervise

import (
	"strings"
	"testing"
	"time"
)

func TestParse_takesAUnitAndCompletesIt(t *testing.T) {
	unit, err := Parse([]byte(`
name: hostpath.csi.k8s.io
command: [/usr/local/bin/hostpathplugin, "--endpoint=$(CSI_ENDPOINT)", "--cost=$$(5)"]
environment: {DATA: $(ROOT)/data}
register: true
restart: {longest: 30s}
`))
	if err != nil {
		t.Fatal(err)
	}
	if unit.Restart.First.Duration != 500*time.Millisecond || unit.Restart.Longest.Duration != 30*time.Second || unit.StopGrace.Duration != 30*time.Second {
		t.Errorf("%+v", unit)
	}
	value := func(name string) (string, bool) { return "<" + name + ">", true }
	for text, want := range map[string]string{unit.Command[1]: "--endpoint=<CSI_ENDPOINT>", unit.Command[2]: "--cost=$(5)", "a$b$": "a$b$"} {
		if got, err := replace(text, value); got != want || err != nil {
			t.Errorf("%s became %s, %v", text, got, err)
		}
	}
}

func TestParse_refusesByName(t *testing.T) {
	for text, want := range map[string]string{
		"command: [a]":                                                 "name: it is missing",
		"name: a_b\ncommand: [a]":                                      `name: "a_b"`,
		"name: ../../x\ncommand: [a]":                                  `name: "../../x"`,
		"name: " + strings.Repeat("a", 64) + "\ncommand: [a]":          "more than 63 bytes",
		"name: kubernetes.io\ncommand: [a]":                            "the host's own directory",
		"name: a":                                                      "command: it is missing",
		"name: a\ncommand: []":                                         "command: it is missing",
		"name: a\ncommand: a b":                                        "cannot unmarshal",
		"name: a\ncommand: [a]\ncommnd: [b]":                           `unknown field "commnd"`,
		"name: a\nname: b\ncommand: [a]":                               "already set",
		"name: a\ncommand: [a, $(SOCKET)]":                             "command[1]: $(SOCKET",
		"name: a\ncommand: [a, $(ROOT]":                                "command[1]: $(ROOT",
		"name: a\ncommand: [a]\nenvironment: {X: $(Y)}":                "environment.X: $(Y",
		"name: a\ncommand: [a]\nenvironment: {'X=': a}":                "not a name of a variable",
		"name: a\ncommand: [\"a\\0\"]":                                 "command[0]: \"a\\x00\" has a zero byte",
		"name: a\ncommand: [a]\nuser: \"0\\0\"":                        "user: \"0\\x00\" has a zero byte",
		"name: a\ncommand: [a]\nworkingDirectory: x":                   "not an absolute path",
		"name: a\ncommand: [a]\nrolling: true":                         "needs register: true",
		"name: a\ncommand: [a]\nstopGrace: -1s":                        "stopGrace: -1s is negative",
		"name: a\ncommand: [a]\nrestart: {first: 5}":                   "cannot unmarshal",
		"name: a\ncommand: [" + strings.Repeat("a", maximumFile) + "]": "more than 65536 bytes",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v; want %s", text, err, want)
		}
	}
}
