package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestKubeFlags_thatCannotWorkAreWrongUsage(t *testing.T) {
	for line, want := range map[string]string{
		"":                                     "",
		"--timeout=0s":                         "--timeout: 0s is not above zero",
		"--timeout=-1s":                        "--timeout: -1s is not above zero",
		"--retry-interval-start=10m":           "is above --retry-interval-max",
		"--leader-election-lease-duration=10s": "is not above --leader-election-renew-deadline",
		"--leader-election-retry-period=9s":    "times --leader-election-retry-period",
		"--leader-election=false --leader-election-retry-period=9s": "",
		"--volume-name-prefix=Upper":                                `"Upper" cannot begin the name`,
		"--volume-name-prefix=" + strings.Repeat("x", 92):           "at most 91",
		"--volume-name-prefix=" + strings.Repeat("x", 91):           "",
		"--volume-name-prefix=":                                     "",
	} {
		var k kubeFlags
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		k.bind(flags)
		if err := flags.Parse(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
		err := k.check()
		var usage *UsageError
		if want == "" && err != nil || want != "" && (!errors.As(err, &usage) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", line, err, want)
		}
	}
}
