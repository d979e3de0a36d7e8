package cli

import (
	"bytes"
	"context"
	"runtime/debug"
	"strings"
	"testing"
)

func run(t *testing.T, arguments ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = Run(context.Background(), "v9.8.7", arguments, &out, &err)
	return code, out.String(), err.String()
}

func TestRun_exitCodes(t *testing.T) {
	cases := []struct {
		name      string
		arguments []string
		code      int
		stderr    string
	}{
		{"nothing shows help", nil, 0, ""},
		{"help", []string{"--help"}, 0, ""},
		{"version", []string{"version"}, 0, ""},
		{"unknown command", []string{"versio"}, 2, `unknown command "versio"; did you mean "version"?`},
		{"unknown flag", []string{"version", "--bogus"}, 2, "unknown flag: --bogus"},
		{"surplus argument", []string{"version", "now"}, 2, "See 'holdfast version --help'."},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			code, _, stderr := run(t, c.arguments...)
			if code != c.code {
				t.Errorf("exit code %d, want %d; stderr: %s", code, c.code, stderr)
			}
			if !strings.Contains(stderr, c.stderr) {
				t.Errorf("stderr %q does not say %q", stderr, c.stderr)
			}
		})
	}
}

func TestVersion_isTheStampedOne(t *testing.T) {
	if _, stdout, _ := run(t, "version"); stdout != "holdfast v9.8.7\n" {
		t.Errorf("version prints %q", stdout)
	}
	if versionOrBuild("") == "" {
		t.Error("a binary without a stamp has no version")
	}
}

func TestVersion_comesFromTheBuild(t *testing.T) {
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123"}
	cases := []struct {
		name string
		info debug.BuildInfo
		want string
	}{
		{"release", debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "v1.2.3"},
		{"commit", debug.BuildInfo{Settings: []debug.BuildSetting{revision}}, "devel-0123456789ab"},
		{"changed tree", debug.BuildInfo{Settings: []debug.BuildSetting{revision, {Key: "vcs.modified", Value: "true"}}}, "devel-0123456789ab-modified"},
		{"no version control", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "devel"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := versionOf(&c.info); got != c.want {
				t.Errorf("version %q, want %q", got, c.want)
			}
		})
	}
}
