package cli

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/why"
)

func TestColour_followsTheEnvironment(t *testing.T) {
	for _, c := range []struct {
		environment map[string]string
		terminal    bool
		want        bool
	}{
		{nil, true, true},
		{nil, false, false},
		{map[string]string{"TERM": "xterm"}, true, true},
		{map[string]string{"TERM": "dumb"}, true, false},
		{map[string]string{"NO_COLOR": "1"}, true, false},
		{map[string]string{"NO_COLOR": "", "TERM": "xterm"}, true, true},
		{map[string]string{"NO_COLOR": "yes", "CLICOLOR_FORCE": "1"}, true, false},
		{map[string]string{"CLICOLOR_FORCE": "1", "TERM": "dumb"}, false, true},
		{map[string]string{"CLICOLOR_FORCE": "0"}, false, false},
		{map[string]string{"CLICOLOR_FORCE": "0"}, true, true},
		{map[string]string{"CLICOLOR": "0"}, true, false},
		{map[string]string{"CLICOLOR": "1"}, false, false},
	} {
		if got := wantsColour(func(name string) string { return c.environment[name] }, c.terminal); got != c.want {
			t.Errorf("%v, terminal %t: %t", c.environment, c.terminal, got)
		}
	}
}

// sequences are those that paint.
func sequences() *regexp.Regexp { return regexp.MustCompile("\x1b\\[[0-9]*m") }

// TestColour_leavesTheColumnsAligned compares a forced run with a plain one.
func TestColour_leavesTheColumnsAligned(t *testing.T) {
	h := startTestHost(t)
	bound := pendingClaim("a-longer-name")
	bound.Spec.VolumeName, bound.Status.Phase = "pv-1", corev1.ClaimBound
	lost := pendingClaim("lost")
	lost.Spec.VolumeName, lost.Status.Phase = "pv-2", corev1.ClaimLost
	h.put(t, bound)
	h.put(t, lost)
	h.put(t, pendingClaim("waits"))
	for _, arguments := range [][]string{{"get", "pvc", "--show-labels"}, {"get", "pvc,pods"}, {"describe", "pvc"}} {
		_, plain, _ := h.run(t, arguments...)
		if sequences().MatchString(plain) {
			t.Fatalf("%v: colours without a terminal:\n%q", arguments, plain)
		}
		t.Setenv("CLICOLOR_FORCE", "1")
		_, painted, _ := h.run(t, arguments...)
		t.Setenv("CLICOLOR_FORCE", "0")
		for _, want := range []string{"\x1b[32mBound\x1b[0m", "\x1b[31mLost\x1b[0m", "\x1b[33mPending\x1b[0m", "\x1b[1m"} {
			if !strings.Contains(painted, want) {
				t.Errorf("%v lacks %q:\n%q", arguments, want, painted)
			}
		}
		if bare := sequences().ReplaceAllString(painted, ""); bare != plain {
			t.Errorf("%v without its colours:\n%s\nwant\n%s", arguments, bare, plain)
		}
	}
	t.Setenv("CLICOLOR_FORCE", "1")
	for _, arguments := range [][]string{{"get", "pvc", "-o", "yaml"}, {"get", "pvc", "-o", "name"}, {"get", "pvc", "-o", "custom-columns=NAME:.metadata.name"}} {
		if _, out, _ := h.run(t, arguments...); sequences().MatchString(out) {
			t.Errorf("%v has colours:\n%q", arguments, out)
		}
	}
}

func TestColour_ofWhy(t *testing.T) {
	t.Setenv("CLICOLOR_FORCE", "1")
	for state, want := range map[why.State]string{
		why.Fine: "\x1b[32m", why.Waits: "\x1b[33m", why.Stuck: "\x1b[31m", why.Unknown: "\x1b[31m",
	} {
		var out bytes.Buffer
		report := why.Report{Subject: "pvc/data", State: state, Findings: []why.Finding{{What: "it waits", Do: "wait"}}}
		if err := writeReport(&out, report, time.Now()); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(out.String(), want+"pvc/data: it waits\x1b[0m\n") || !strings.Contains(out.String(), "\x1b[1mdo    \x1b[0m wait") {
			t.Errorf("%s:\n%q", state, out.String())
		}
	}
}
