package cli

import (
	"os"
	"strings"
	"testing"
)

func TestReleaseFilePages_takesThePagesOut(t *testing.T) {
	before := resident(t)
	if err := releaseFilePages(); err != nil {
		t.Fatal(err)
	}
	after := resident(t)
	t.Logf("resident pages of files: %s, then %s", before, after)
	if before == after {
		t.Error("no memory was released")
	}
	// The kernel loads pages again when they are needed: this code has just run.
	if err := releaseFilePages(); err != nil {
		t.Fatal(err)
	}
}

func resident(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "RssFile:")
	value, _, _ := strings.Cut(rest, "kB")
	return strings.TrimSpace(value)
}
