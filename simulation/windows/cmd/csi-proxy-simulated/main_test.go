package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/cli"
)

// The control has no authentication, so other machines must not reach it.
func TestCheck_acceptsLoopbackAddresses(t *testing.T) {
	for address, good := range map[string]bool{"": true, "127.0.0.1:1": true, "[::1]:1": true, "0.0.0.0:1": false, ":1": false, "localhost:1": false, "10.0.0.1:1": false, "127.0.0.1": false} {
		if err := (&simulated{control: address}).check(); (err == nil) != good {
			t.Errorf("control on %q: %v", address, err)
		}
	}
}

func TestRun_refusesABadControl(t *testing.T) {
	for _, verb := range []string{"run", "install"} {
		var out bytes.Buffer
		code := cli.Run(t.Context(), "v1", (&simulated{}).machine(), []string{verb, "--simulated-control=10.0.0.1:1"}, &out, &out)
		if code != 2 || !strings.Contains(out.String(), "not a loopback address") {
			t.Errorf("%s ends with %d: %s", verb, code, &out)
		}
	}
}

// The state of a simulated machine ends with the process, and what csi-proxy
// remembers of it must end then too.
func TestOpen_isVolatile(t *testing.T) {
	for address, pages := range map[string]int{"": 0, "127.0.0.1:1": 1} {
		opened, err := (&simulated{control: address}).open(slog.New(slog.DiscardHandler))
		if err != nil || !opened.Volatile || opened.Calls.Volumes == nil || len(opened.Pages) != pages {
			t.Errorf("with control on %q: %+v, %v", address, opened, err)
		}
	}
}
