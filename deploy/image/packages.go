package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

// dpkgDirectory is the data base of dpkg(1).
const dpkgDirectory = "/var/lib/dpkg"

// addPackages writes which Debian packages the files came from, with versions,
// where scanners look for them (/var/lib/dpkg/status.d, one file each), and takes
// the packages' copyright files: their licences demand that.
func addPackages(t *tree, s *system) error {
	owners, err := s.owners()
	if err != nil {
		return err
	}
	stanzas, err := s.stanzas()
	if err != nil {
		return err
	}
	for _, name := range owners {
		stanza, known := stanzas[name]
		if !known {
			return fmt.Errorf("package %s has no stanza in %s/status", name, dpkgDirectory)
		}
		t.file("var/lib/dpkg/status.d/"+name, 0o644, []byte(stanza))
		copyright := "/usr/share/doc/" + name + "/copyright"
		if err := s.add(t, copyright); err != nil {
			return fmt.Errorf("copyright of package %s: %w; reinstall it with its documentation, or use deploy/image/fetch", name, err)
		}
	}
	return nil
}

// owners are the packages that contain the used files.
func (s *system) owners() ([]string, error) {
	const suffix = ".list"
	names, err := s.list(dpkgDirectory + "/info")
	if err != nil {
		return nil, fmt.Errorf("packages of the root: %w", err)
	}
	missing := maps.Clone(s.used)
	owners := map[string]bool{}
	for _, name := range names {
		if !strings.HasSuffix(name, suffix) {
			continue
		}
		list, err := s.read(dpkgDirectory + "/info/" + name)
		if err != nil {
			return nil, err
		}
		for file := range strings.Lines(string(list)) {
			file = merged(strings.TrimSpace(file))
			if missing[file] {
				delete(missing, file)
				bare, _, _ := strings.Cut(strings.TrimSuffix(name, suffix), ":")
				owners[bare] = true
			}
		}
	}
	var orphans []error
	for _, file := range slices.Sorted(maps.Keys(missing)) {
		orphans = append(orphans, fmt.Errorf("%s belongs to no Debian package", file))
	}
	return slices.Sorted(maps.Keys(owners)), errors.Join(orphans...)
}

// stanzas returns the entries of installed packages in the data base, reduced to
// the fields that identify them.
func (s *system) stanzas() (map[string]string, error) {
	status, err := s.read(dpkgDirectory + "/status")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	stanzas := map[string]string{}
	for entry := range strings.SplitSeq(string(status), "\n\n") {
		fields := fieldsOf(entry)
		if fields["Package"] == "" {
			continue
		}
		var kept bytes.Buffer
		for _, name := range []string{"Package", "Status", "Maintainer", "Architecture", "Source", "Version"} {
			if fields[name] != "" {
				fmt.Fprintf(&kept, "%s: %s\n", name, fields[name])
			}
		}
		stanzas[fields["Package"]] = kept.String()
	}
	return stanzas, nil
}

func fieldsOf(entry string) map[string]string {
	fields := map[string]string{}
	scanner := bufio.NewScanner(strings.NewReader(entry))
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		name, value, ok := strings.Cut(scanner.Text(), ":")
		if ok && !strings.HasPrefix(name, " ") {
			fields[name] = strings.TrimSpace(value)
		}
	}
	return fields
}
