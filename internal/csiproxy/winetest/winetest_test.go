package winetest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestDir_isRemovedWithWhatIsInIt(t *testing.T) {
	var dir string
	t.Run("a test: with a directory", func(t *testing.T) {
		dir = Dir(t)
		if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "a", "file"), []byte("text"), 0o644); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the test its directory is still there (%v)", err)
	}
}
