package native

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/winetest"
)

// A link on the way is detected and not followed, and its target stays.
func TestDirectory_neverFollowsALink(t *testing.T) {
	outside := winetest.Dir(t)
	precious := filepath.Join(outside, "precious")
	must(t, os.MkdirAll(precious, 0o755))
	root, path := open(t)
	plantLink(t, outside, filepath.Join(path, "link"))

	info, err := root.Stat("link")
	must(t, err)
	if !info.IsReparse() {
		t.Errorf("the link is %+v", info)
	}
	list, err := root.List()
	must(t, err)
	if len(list) != 1 || !list[0].IsReparse() {
		t.Errorf("the link in the list is %+v", list)
	}
	_, err = root.Open("link")
	refused(t, "open", err, win32.ErrorStoppedOnSymlink)
	_, err = root.OpenMounted("link")
	if err == nil {
		t.Error("a link was opened as a mounted folder")
	}
	refused(t, "mkdir over it", root.Mkdir("link"), win32.ErrorAlreadyExists)

	err = root.Remove("link")
	if _, gone := os.Stat(precious); gone != nil {
		t.Fatalf("the link's removal (%v) removed what it leads to: %v", err, gone)
	}
	t.Run("and goes by itself", func(t *testing.T) {
		if errors.Is(err, win32.ErrorReparseTagMismatch) {
			effectMissing(t, "unlinking a link", err)
		}
		must(t, err)
		_, err = root.Stat("link")
		refused(t, "after its removal", err, win32.ErrorFileNotFound)
	})
}

// A link to an empty directory, which wine would remove instead of the link.
func TestDirectory_removesTheLinkAndNotAnEmptyTarget(t *testing.T) {
	outside := winetest.Dir(t)
	target := filepath.Join(outside, "empty")
	must(t, os.Mkdir(target, 0o755))
	root, path := open(t)
	plantLink(t, target, filepath.Join(path, "link"))
	err := root.Remove("link")
	if _, gone := os.Stat(target); gone != nil {
		t.Fatalf("the link's removal (%v) removed its target: %v", err, gone)
	}
	t.Run("but the link", func(t *testing.T) {
		if errors.Is(err, win32.ErrorReparseTagMismatch) {
			effectMissing(t, "unlinking a link", err)
		}
		must(t, err)
	})
}

// A link to a missing target is a link to a directory, too.
func TestDirectory_linksToDirectories(t *testing.T) {
	root, path := open(t)
	target := filepath.Join(path, "missing")
	err := root.Symlink("link", target)
	if errors.Is(err, win32.ErrorCallNotImplemented) {
		effectMissing(t, "CreateSymbolicLink", err)
	}
	must(t, err)
	info, err := root.Stat("link")
	must(t, err)
	if !info.IsReparse() || !info.IsDir() || info.ReparseTag != win32.ReparseTagSymlink {
		t.Errorf("the link is %+v", info)
	}
	data, err := root.Reparse("link")
	must(t, err)
	reparse, err := win32.DecodeReparse(data)
	if err != nil || reparse.Target() != target {
		t.Errorf("it leads to %q, %v", reparse.Target(), err)
	}
	refused(t, "again", root.Symlink("link", target), win32.ErrorAlreadyExists)
	must(t, root.Remove("link"))
}

// A false success of Windows' call is an error here.
func TestDirectory_reportsALinkThatWasNotMade(t *testing.T) {
	root, path := open(t)
	err := root.Symlink("link", path)
	_, statErr := root.Stat("link")
	if (err == nil) != (statErr == nil) {
		t.Errorf("Symlink says %v, Stat says %v", err, statErr)
	}
	if err == nil {
		must(t, root.Remove("link"))
	}
}

// An entry that is not a reparse point has the error number for it.
func TestDirectory_readsReparseDataOnlyOfReparsePoints(t *testing.T) {
	root, _ := open(t)
	must(t, root.Mkdir("plain"))
	_, err := root.Reparse("plain")
	refused(t, "reparse data", err, win32.ErrorNotAReparsePoint)
	_, err = root.OpenMounted("plain")
	refused(t, "mounted", err, win32.ErrorNotAReparsePoint)
	_, err = root.Reparse("none")
	refused(t, "of nothing", err, win32.ErrorFileNotFound)
}
