package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/winetest"
)

func TestSpelled_takesUpstreamsCommandLines(t *testing.T) {
	for _, c := range []struct{ given, want string }{
		{"", "run"},
		{`-windows-service -log_file=\etc\kubernetes\logs\csi-proxy.log -logtostderr=false`,
			`run --windows-service --log_file=\etc\kubernetes\logs\csi-proxy.log --logtostderr=false`},
		{`-kubelet-path C:\var\lib\kubelet -v=5`, `run --kubelet-path C:\var\lib\kubelet -v=5`},
		{"--metrics-bind-address=:9182", "run --metrics-bind-address=:9182"},
		{"install -working-dir=C:\\a", "install --working-dir=C:\\a"},
		{"--help", "--help"},
		{"-h", "-h"},
		{"status", "status"},
		{"run -- -x-y", "run -- -x-y"},
	} {
		if got := strings.Join(spelled(strings.Fields(c.given)), " "); got != c.want {
			t.Errorf("%q becomes %q, want %q", c.given, got, c.want)
		}
	}
}

// parsed is the configuration of a command line.
func parsed(t *testing.T, arguments ...string) (*config, *pflag.FlagSet, error) {
	t.Helper()
	c := &config{}
	flags := c.flags()
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	if err := flags.Parse(arguments); err != nil {
		return nil, nil, err
	}
	return c, flags, c.check()
}

func TestFlags_refuseWhatCannotBe(t *testing.T) {
	for _, bad := range []string{
		"--kubelet-path=relative", `--kubelet-path=\\server\share`, `--kubelet-path=C:\`, `--working-dir=C:\a\..\b`,
		"--allow-sid=S-1-1-0", "--allow-sid=Everyone",
		"--log-level=loud", "--log-format=xml", "--metrics-bind-address=9182", "--simulated-control=127.0.0.1:1", "--require-privacy=perhaps",
	} {
		if _, _, err := parsed(t, bad); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

// The service is started with the arguments of install, which parse to the same
// configuration.
func TestArguments_areThoseOfInstall(t *testing.T) {
	c, flags, err := parsed(t, `--working-dir=C:\a b`, `--working-dir=D:\c,d`, "--service-allow=MSiSCSI,Other",
		"--require-privacy=false", "--service-name=other", "-v=4")
	if err != nil {
		t.Fatal(err)
	}
	arguments, err := c.arguments(flags)
	if err != nil {
		t.Fatal(err)
	}
	if arguments[0] != "run" || arguments[1] != "--windows-service" ||
		slices.ContainsFunc(arguments, func(a string) bool { return strings.HasPrefix(a, "--kubelet-path") }) {
		t.Errorf("the service is started with %q", arguments)
	}
	again, _, err := parsed(t, arguments[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	if !again.windowsService || !slices.Equal(again.workingDirs, c.workingDirs) ||
		!slices.Equal(again.services, c.services) || again.requirePrivacy || again.serviceName != "other" || again.log.verbosity != 4 {
		t.Errorf("the service reads %+v", again)
	}
}

func TestRun_exitCodes(t *testing.T) {
	for _, c := range []struct {
		line string
		code int
		says string
	}{
		{"version", exitDone, `\\.\pipe\csi-proxy-v1`},
		{"--help", exitDone, "named pipes"},
		{"nothing", exitUsage, "unknown command"},
		{"run --unknown", exitUsage, "unknown flag"},
		{"run now", exitUsage, "takes no arguments"},
		{"-kubelet-path=relative", exitUsage, "--kubelet-path"},
	} {
		var out bytes.Buffer
		if code := Run(t.Context(), "v1", Machine{}, strings.Fields(c.line), &out, &out); code != c.code ||
			!strings.Contains(out.String(), c.says) {
			t.Errorf("%q ends with %d: %s", c.line, code, &out)
		}
	}
}

func TestVersions_areTheKEPsAndTheGroups(t *testing.T) {
	if n := len(versions()); n != 26 {
		t.Errorf("there are %d pipes, want 3 and 23", n)
	}
}

func TestLogFile_staysBelowItsSize(t *testing.T) {
	path := filepath.Join(winetest.Dir(t), "proxy.log")
	log, err := openLogFile(path, 100)
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("x", 29) + "\n"
	for range 20 {
		if _, err := log.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + ".old"} {
		text, err := os.ReadFile(name)
		if err != nil || len(text) == 0 || len(text) > 100 || strings.ReplaceAll(string(text), line, "") != "" {
			t.Errorf("%s has %d bytes, %v", name, len(text), err)
		}
	}
	if _, err := log.Write([]byte(line)); err == nil {
		t.Error("a closed log is written to")
	}
}

func TestLogFile_continuesAfterARestart(t *testing.T) {
	path := filepath.Join(winetest.Dir(t), "proxy.log")
	for range 2 {
		log, err := openLogFile(path, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.Write([]byte("line\n")); err != nil {
			t.Fatal(err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "line\nline\n" {
		t.Errorf("the log is %q, %v", text, err)
	}
}
