package cli

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

// An address that others reach needs a token, and a token cannot be guessed.
func TestStatusPage_needsATokenUnlessOnLoopback(t *testing.T) {
	directory := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(directory, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	long, short := file("long", "0123456789abcdef\n"), file("short", "0123456789abcde\n")
	source, err := hostSource(api.Dial(filepath.Join(directory, "none")))
	if err != nil {
		t.Fatal(err)
	}
	for arguments, wrong := range map[string]string{
		"--address=127.0.0.1:0": "", "--address=[::1]:0": "", "--address=localhost:80": "",
		"--address=0.0.0.0:80": "is not a loopback address", "--address=:80": "is not a loopback address",
		"--address=server.example:80": "is not a loopback address", "--address=localhost.example:80": "is not a loopback address",
		"--address=127.0.0.1":                       "want HOST:PORT",
		"--address=0.0.0.0:80 --token-file=" + long: "", "--address=127.0.0.1:80 --token-file=" + long: "",
		"--address=0.0.0.0:80 --token-file=" + short:                "it needs 16 at least",
		"--address=0.0.0.0:80 --token-file=" + directory + "/none":  "no such file",
		"--address=127.0.0.1:80 --cert-file=" + long:                "a certificate of the status page needs its key",
		"--address=127.0.0.1:80 --cert-file=a --key-file=b":         "",
		"--address=127.0.0.1:80 --key-file=" + directory + "/a.key": "and a key its certificate",
	} {
		var page statusPage
		flags := pflag.NewFlagSet("status", pflag.ContinueOnError)
		page.bind(flags, "", "127.0.0.1:0", "")
		if err := flags.Parse(strings.Fields(arguments)); err != nil {
			t.Fatal(err)
		}
		handler, err := page.handler(source, slog.New(slog.DiscardHandler))
		switch {
		case err == nil && wrong != "":
			t.Errorf("%s is accepted; want an error with %q", arguments, wrong)
		case err != nil && (wrong == "" || !strings.Contains(err.Error(), wrong)):
			t.Errorf("%s: %v; want %q", arguments, err, wrong)
		}
		if handler != nil {
			handler.Close()
		}
	}
}
