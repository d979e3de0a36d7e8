package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// machine has the names of an architecture in ELF, Debian and OCI.
type machine struct {
	triplet string // of Debian's library directories
	elf     elf.Machine
}

func machineOf(arch string) (machine, error) {
	switch arch {
	case "amd64":
		return machine{triplet: "x86_64-linux-gnu", elf: elf.EM_X86_64}, nil
	case "arm64":
		return machine{triplet: "aarch64-linux-gnu", elf: elf.EM_AARCH64}, nil
	}
	return machine{}, fmt.Errorf("architecture %q: known are amd64 and arm64", arch)
}

// system is a Debian root from which files are taken. Links are followed within
// it, as they would be in a chroot.
type system struct {
	root    *os.Root
	machine machine
	// used has the files that were taken, by their names in a merged root.
	used map[string]bool
}

func openSystem(directory, arch string) (*system, error) {
	m, err := machineOf(arch)
	if err != nil {
		return nil, err
	}
	// A Go root refuses links that leave it, and absolute ones do so even when
	// they would end inside; so each is resolved here.
	root, err := os.OpenRoot(filepath.Clean(directory))
	if err != nil {
		return nil, err
	}
	return &system{root: root, machine: m, used: map[string]bool{}}, nil
}

func (s *system) close() { _ = s.root.Close() }

func inRoot(name string) string { return strings.TrimPrefix(merged(name), "/") }

func (s *system) read(name string) ([]byte, error) { return s.root.ReadFile(inRoot(name)) }

// list is the sorted names in a directory.
func (s *system) list(directory string) ([]string, error) {
	entries, err := fs.ReadDir(s.root.FS(), inRoot(directory))
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, entry := range entries {
		names[i] = entry.Name()
	}
	return names, nil
}

// add takes a file, and every link that leads to it.
func (s *system) add(t *tree, name string) error {
	_, err := s.take(t, name)
	return err
}

// take does what add does and returns the contents.
func (s *system) take(t *tree, name string) ([]byte, error) {
	const mostLinks = 10
	for range mostLinks {
		name = merged(name)
		info, err := s.root.Lstat(inRoot(name))
		if err != nil {
			return nil, fmt.Errorf("take %s: %w", name, err)
		}
		s.used[name] = true
		if info.Mode()&fs.ModeSymlink == 0 {
			return s.takeRegular(t, name, info)
		}
		target, err := s.root.Readlink(inRoot(name))
		if err != nil {
			return nil, err
		}
		t.link(name, target)
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(name), target)
		}
		name = target
	}
	return nil, fmt.Errorf("take %s: too many links", name)
}

func (s *system) takeRegular(t *tree, name string, info fs.FileInfo) ([]byte, error) {
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("take %s: it is not a regular file (%v)", name, info.Mode().Type())
	}
	data, err := s.read(name)
	if err != nil {
		return nil, err
	}
	t.file(name, info.Mode().Perm()&^0o022, data)
	return data, nil
}

// addProgram takes a program and the libraries that it and they need.
func (s *system) addProgram(t *tree, name string) error {
	for _, directory := range []string{"/usr/sbin", "/usr/bin"} {
		err := s.addBinary(t, path.Join(directory, name))
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fmt.Errorf("program %s is not in /usr/sbin or /usr/bin of the root; test/install-packages installs it on this machine, deploy/image/fetch makes a root that has it", name)
}

func (s *system) addBinary(t *tree, name string) error {
	data, err := s.take(t, name)
	if err != nil {
		return err
	}
	needs, err := s.needs(name, data)
	if err != nil {
		return err
	}
	for _, need := range needs {
		if s.used[need] {
			continue
		}
		if err := s.addBinary(t, need); err != nil {
			return fmt.Errorf("%s needs it: %w", name, err)
		}
	}
	return nil
}

// needs are the files that the loader maps for an ELF file. They are read here, because
// ldd(1) executes the file.
func (s *system) needs(name string, data []byte) ([]string, error) {
	file, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s is not an ELF file (a script would need a shell): %w", name, err)
	}
	if file.Machine != s.machine.elf {
		return nil, fmt.Errorf("%s is for %v; wanted %v", name, file.Machine, s.machine.elf)
	}
	libraries, err := file.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("libraries of %s: %w", name, err)
	}
	if opensUnwinder(file) {
		libraries = append(libraries, "libgcc_s.so.1")
	}
	var found []string
	for _, library := range libraries {
		full, err := s.library(library)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		found = append(found, full)
	}
	interpreter := interpreterOf(file)
	if interpreter != "" {
		found = append(found, merged(interpreter))
	}
	return found, nil
}

// opensUnwinder reports whether a program ends threads: the C library then opens
// libgcc_s.so.1 at run time and aborts without it (glibc,
// sysdeps/nptl/unwind-forcedunwind).
func opensUnwinder(file *elf.File) bool {
	symbols, err := file.ImportedSymbols()
	return err == nil && !isLibC(file) && slices.ContainsFunc(symbols, func(s elf.ImportedSymbol) bool {
		return s.Name == "pthread_cancel" || s.Name == "pthread_exit"
	})
}

func isLibC(file *elf.File) bool {
	names, err := file.DynString(elf.DT_SONAME)
	return err == nil && slices.Contains(names, "libc.so.6")
}

func (s *system) library(name string) (string, error) {
	for _, directory := range []string{"/usr/lib/" + s.machine.triplet, "/usr/lib64", "/usr/lib"} {
		full := path.Join(directory, name)
		if _, err := s.root.Lstat(inRoot(full)); err == nil {
			return full, nil
		}
	}
	return "", fmt.Errorf("library %s is in no library directory of the root", name)
}

func interpreterOf(file *elf.File) string {
	for _, segment := range file.Progs {
		if segment.Type != elf.PT_INTERP {
			continue
		}
		data := make([]byte, segment.Filesz)
		if _, err := segment.ReadAt(data, 0); err != nil {
			return ""
		}
		return string(bytes.TrimRight(data, "\x00"))
	}
	return ""
}

// checkStatic refuses a binary that the image cannot run.
func checkStatic(name string, data []byte, arch string) error {
	m, err := machineOf(arch)
	if err != nil {
		return err
	}
	file, err := elf.NewFile(bytes.NewReader(data))
	switch {
	case err != nil:
		return fmt.Errorf("%s is not an ELF file: %w", name, err)
	case file.Machine != m.elf:
		return fmt.Errorf("%s is for %v; wanted %v: build it with GOOS=linux GOARCH=%s", name, file.Machine, m.elf, arch)
	case interpreterOf(file) != "":
		return fmt.Errorf("%s is not static: build it with CGO_ENABLED=0", name)
	}
	return nil
}
