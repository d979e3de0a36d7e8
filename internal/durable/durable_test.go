package durable

import (
	"os"
	"path/filepath"
	"testing"
)

func openRoot(t *testing.T) (*os.Root, string) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root, dir
}

func TestWriteFile_replacesAndLeavesNoTemporary(t *testing.T) {
	root, dir := openRoot(t)
	for _, content := range []string{"first, and longer", "second"} {
		if err := WriteFile(root, "record.json", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, "record.json"))
		if err != nil || string(got) != content {
			t.Fatalf("got %q, %v; want %q", got, err, content)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Fatalf("entries %v, %v; want the record alone", entries, err)
	}
}

func TestWriteFile_keepsOldContentWhenItFails(t *testing.T) {
	root, dir := openRoot(t)
	if err := os.MkdirAll(filepath.Join(dir, "record.json", "occupied"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(root, "record.json", []byte("x"), 0o600); err == nil {
		t.Fatal("replacing a directory succeeded")
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 1 {
		t.Fatalf("a failed write left %v", entries)
	}
}

func TestWriteFile_doesNotLeaveTheRoot(t *testing.T) {
	root, dir := openRoot(t)
	if err := os.Symlink("/tmp", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(root, "out/escaped", nil, 0o600); err == nil {
		t.Fatal("wrote through a link that leaves the root")
	}
}

func TestRename_movesBetweenDirectories(t *testing.T) {
	root, dir := openRoot(t)
	for _, name := range []string{"volumes", "trash", "volumes/a"} {
		if err := Mkdir(root, name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := Mkdir(root, "volumes", 0o700); err != nil {
		t.Fatalf("an existing directory: %v", err)
	}
	if err := Rename(root, "volumes/a", "trash/a"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "trash", "a")); err != nil {
		t.Fatal(err)
	}
}
