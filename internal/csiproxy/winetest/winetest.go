// Package winetest is for tests that also run under wine, where a directory that
// is not empty cannot be removed by os.RemoveAll, and so not by T.TempDir: wine
// answers the delete request that Go makes with "invalid function", which Go does
// not take as a reason for its fallback.
package winetest

import (
	"os"
	"strings"
	"testing"
)

// Dir makes a directory for the test and removes it at the test's end, as
// T.TempDir does. A link in it is not entered.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", strings.Map(plain, t.Name())+"-*") //nolint:usetesting // this is instead of T.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeTree(dir); err != nil {
			t.Errorf("the test's directory is left behind: %v", err)
		}
	})
	return dir
}

// plain keeps of a test's name what every file system takes, also csi-proxy's
// path rules.
func plain(r rune) rune {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_':
		return r
	}
	return '-'
}
