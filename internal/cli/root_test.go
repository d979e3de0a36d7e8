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

// The exit codes: 2 is wrong usage, 1 is everything else that fails.
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
		{"driver without a backend", []string{"driver"}, 2, "--backend is not given; this binary has local"},
		{"driver with a backend it has not", []string{"driver", "--backend=nfs"}, 2, `--backend "nfs": this binary has local`},
		{"driver in an unknown mode", []string{"driver", "both", "--backend=local"}, 2, `invalid argument "both"`},
		{"driver on a network socket", []string{"driver", "--backend=local", "--endpoint=tcp://:1"}, 2, "unix sockets only"},
		{"driver with half a pool image", []string{"driver", "--backend=local", "--pool-image=/x"}, 2, "go together"},
		{"driver with a size that is none", []string{"driver", "--backend=local", "--reserve=much"}, 2, `"much" is not a size`},
		{"driver with a negative size", []string{"driver", "--backend=local", "--reserve=-1Gi"}, 2, "above 0"},
		{"driver with a certificate and no key", []string{"driver", "--backend=local", "--metrics-address=:0", "--metrics-cert-file=/x"}, 2, "go together"},
		{"driver with a certificate for no page", []string{"driver", "--backend=local", "--metrics-cert-file=/x", "--metrics-key-file=/y"}, 2, "--metrics-address"},
		{"driver with an unknown log level", []string{"driver", "--backend=local", "--log-level=loud"}, 2, `log level "loud"`},
		{"driver on a pool that cannot be", []string{"driver", "--backend=local", "--pool=/proc/pool"}, 1, "open the pool /proc/pool"},
		{"driver with the host of another system", []string{"driver", "--backend=ebs", "--windows-host=proxy"}, 2, "not a Windows node"},
		{"driver with a host that is none", []string{"driver", "--backend=ebs", "--windows-host=pipe"}, 2, "none of auto, proxy, native"},
		{"coordinate without a driver", []string{"coordinate"}, 2, "--driver-name is not given"},
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
	if _, stdout, _ := run(t, "--version"); stdout != "holdfast v9.8.7\n" {
		t.Errorf("--version prints %q", stdout)
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
