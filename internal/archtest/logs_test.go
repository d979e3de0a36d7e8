package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLogs_haveOneForm: a handler made elsewhere writes a duration as a bare
// number of nanoseconds. Test programs may have their own.
func TestLogs_haveOneForm(t *testing.T) {
	made := regexp.MustCompile(`\bslog\.New(JSON|Text)Handler\(`)
	found := false
	for _, top := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join("../..", top), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil || !made.Match(source) {
				return err
			}
			switch directory := filepath.ToSlash(filepath.Dir(path)); {
			case strings.HasSuffix(directory, "internal/logformat"):
				found = true
			case !strings.HasSuffix(directory, "simulation/apiserver"):
				t.Errorf("%s makes a handler of its own: use internal/logformat", path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !found {
		t.Error("internal/logformat makes no handler: the rule guards nothing")
	}
}
