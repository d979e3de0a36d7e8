package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestAnswers_areClassifiedInLifecycle: a second function that maps the class of an
// error to the next step could map it differently.
func TestAnswers_areClassifiedInLifecycle(t *testing.T) {
	classifies, found := regexp.MustCompile(`\bclaim\.Classify\(`), false
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if entry != nil && entry.IsDir() && strings.HasPrefix(entry.Name(), "_") {
			return filepath.SkipDir // no part of ./..., such as the overlays of the simulation
		}
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil || !classifies.Match(source) {
			return err
		}
		if found = true; !strings.HasSuffix(filepath.ToSlash(filepath.Dir(path)), "internal/lifecycle") {
			t.Errorf("%s classifies a driver's answer: ask internal/lifecycle what follows from it", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !found {
		t.Error("internal/lifecycle does not call claim.Classify: the rule guards nothing")
	}
}
