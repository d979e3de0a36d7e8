package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// goPackage is a directory with Go files, for all systems together.
type goPackage struct {
	name         string // module-relative
	lines, tests int    // hand-written
	generated    int
	imports      []string // of hand-written and generated code, not of tests; module-relative
	functions    []int    // lines of each hand-written function
}

// readTree parses the Go files of the module at root, without nested modules and
// testdata.
func readTree(root string) ([]*goPackage, error) {
	module, err := modulePath(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	packages := map[string]*goPackage{}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return skip(root, path, entry.Name())
		case filepath.Ext(path) != ".go":
			return nil
		}
		relative, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		name := filepath.ToSlash(relative)
		if packages[name] == nil {
			packages[name] = &goPackage{name: name}
		}
		return packages[name].add(path, module)
	})
	if err != nil {
		return nil, err
	}
	sorted := make([]*goPackage, 0, len(packages))
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		sorted = append(sorted, packages[name])
	}
	return sorted, nil
}

func skip(root, path, name string) error {
	if path == root {
		return nil
	}
	if name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return fs.SkipDir
	}
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	if err == nil {
		return fs.SkipDir
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func modulePath(goMod string) (string, error) {
	text, err := os.ReadFile(goMod)
	if err != nil {
		return "", fmt.Errorf("read the module's path: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(path), nil
		}
	}
	return "", fmt.Errorf("%s has no line with the module's path", goMod)
}

func (p *goPackage) add(path, module string) error {
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	lines := bytes.Count(source, []byte("\n"))
	switch {
	case ast.IsGenerated(file):
		p.generated += lines
	case strings.HasSuffix(path, "_test.go"):
		p.tests += lines
		return nil
	default:
		p.lines += lines
		for _, declaration := range file.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok {
				p.functions = append(p.functions, files.Position(function.End()).Line-files.Position(function.Pos()).Line+1)
			}
		}
	}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if name, ok := strings.CutPrefix(imported, module+"/"); ok && !slices.Contains(p.imports, name) {
			p.imports = append(p.imports, name)
		}
	}
	return nil
}
