package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// onMachines are programs that the code spawns on a machine with systemd only: the host's
// daemon does not run in the image.
var onMachines = []string{"systemctl"}

// TestPrograms_areThoseThatTheCodeSpawns reads the literals of command.Command
// in the packages that spawn.
func TestPrograms_areThoseThatTheCodeSpawns(t *testing.T) {
	spawned := map[string]bool{}
	err := filepath.WalkDir("../../internal", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.CompositeLit); ok {
				for _, name := range commandNames(literal) {
					spawned[name] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range onMachines {
		if !spawned[name] {
			t.Errorf("the code does not spawn %s", name)
		}
		delete(spawned, name)
	}
	want, got := slices.Sorted(maps.Keys(spawned)), slices.Sorted(slices.Values(programs()))
	if !slices.Equal(got, want) {
		t.Errorf("the image has %v; the code spawns %v", got, want)
	}
}

// commandNames are the names in a literal of command.Command or []command.Command.
func commandNames(literal *ast.CompositeLit) (names []string) {
	if list, ok := literal.Type.(*ast.ArrayType); ok && isCommand(list.Elt) {
		for _, element := range literal.Elts {
			if inner, ok := element.(*ast.CompositeLit); ok {
				names = append(names, nameField(inner)...)
			}
		}
		return names
	}
	if isCommand(literal.Type) {
		return nameField(literal)
	}
	return nil
}

func isCommand(e ast.Expr) bool {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != "Command" {
		return false
	}
	qualifier, ok := selector.X.(*ast.Ident)
	return ok && qualifier.Name == "command"
}

func nameField(literal *ast.CompositeLit) []string {
	for _, element := range literal.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if key, ok := pair.Key.(*ast.Ident); !ok || key.Name != "Name" {
			continue
		}
		if value, ok := pair.Value.(*ast.BasicLit); ok {
			name, _ := strconv.Unquote(value.Value)
			return []string{name}
		}
	}
	return nil
}

func TestParse_refusesNamesThatReadersWouldChange(t *testing.T) {
	for _, name := range []string{"holdfast", "holdfast:1", "local/holdfast:1", "holdfast.dev/holdfast", "holdfast.dev/holdfast:", "holdfast.dev:1", "a.b/c@sha256:1"} {
		if _, err := parse([]string{"-name", name}); err == nil {
			t.Errorf("%q was taken", name)
		}
	}
	if _, err := parse([]string{"-name", "holdfast.dev/holdfast:1.0"}); err != nil {
		t.Error(err)
	}
}

func TestBuild_refusesABinaryTheImageCannotRun(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the programs of the image are those of a Debian system")
	}
	text := filepath.Join(t.TempDir(), "holdfast")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for binary, want := range map[string]string{"/usr/sbin/mke2fs": "not static", text: "not an ELF file"} {
		_, err := build(options{root: "/", binary: binary, arch: runtime.GOARCH})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q in it", binary, err, want)
		}
	}
}

func TestBuild_namesTheProgramThatTheRootLacks(t *testing.T) {
	_, err := build(options{root: t.TempDir(), binary: "none", arch: "amd64"})
	if err == nil || !strings.Contains(err.Error(), "mkfs.ext4") || !strings.Contains(err.Error(), "deploy/image/fetch") {
		t.Errorf("error %v; want the program and what to do in it", err)
	}
}

func TestWriteFile_leavesNothingWhenItFails(t *testing.T) {
	directory := t.TempDir()
	err := writeFile(filepath.Join(directory, "image.tar"), func(w io.Writer) error {
		_, _ = w.Write([]byte("half"))
		return io.ErrShortWrite
	})
	entries, _ := os.ReadDir(directory)
	if err == nil || len(entries) != 0 {
		t.Errorf("error %v, left %v", err, entries)
	}
}
