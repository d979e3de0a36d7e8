package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"strings"
)

// programs are those that holdfast spawns: packages internal/linux/fs and
// internal/backend/local, through internal/linux/command. The test that compares
// the two lists is TestPrograms_areThoseThatTheCodeSpawns.
func programs() []string {
	return []string{"mkfs.ext4", "e2fsck", "resize2fs", "mkfs.xfs", "xfs_repair", "mkfs.btrfs"}
}

// user is the default user of the image: the controllers need no privilege. The node
// container mounts, so its deployment sets root.
const user = "65532:65532"

// toolsLayer has what changes with Debian only, so that a new version of
// holdfast brings a new upper layer alone.
func toolsLayer(o options) (*tree, error) {
	t := newTree()
	skeleton(t)
	system, err := openSystem(o.root, o.arch)
	if err != nil {
		return nil, err
	}
	defer system.close()
	for _, name := range programs() {
		if err := system.addProgram(t, name); err != nil {
			return nil, err
		}
	}
	// mke2fs has its defaults here: without it ext4 lacks metadata_csum and 64bit
	// where the built-in profile is an older one.
	if err := system.add(t, "/etc/mke2fs.conf"); err != nil {
		return nil, err
	}
	if err := addCertificates(t, system); err != nil {
		return nil, err
	}
	return t, addPackages(t, system)
}

// skeleton is the root that every container expects.
func skeleton(t *tree) {
	for _, name := range []string{"dev", "etc", "proc", "run", "sys", "usr/bin", "usr/lib", "usr/lib64", "usr/sbin", "var/lib"} {
		t.directory(name, 0o755)
	}
	t.directory("tmp", 0o1777)
	for _, merged := range mergedDirectories() {
		t.link(merged, "usr/"+merged)
	}
	t.file("etc/passwd", 0o644, []byte("root:x:0:0:root:/:/nonexistent\nholdfast:x:65532:65532:holdfast:/nonexistent:/nonexistent\n"))
	t.file("etc/group", 0o644, []byte("root:x:0:\nholdfast:x:65532:\n"))
	// Go's resolver asks DNS before /etc/hosts where this file is missing.
	t.file("etc/nsswitch.conf", 0o644, []byte("hosts: files dns\n"))
}

// addCertificates joins the roots of Debian's package ca-certificates, for
// clouds and collectors reached over TLS. The joined file of the machine is not
// taken: it may trust certificates of that machine alone.
func addCertificates(t *tree, s *system) error {
	const directory = "/usr/share/ca-certificates/mozilla"
	names, err := s.list(directory)
	if err != nil {
		return fmt.Errorf("certificates: %w; install the package ca-certificates", err)
	}
	var bundle bytes.Buffer
	for _, name := range names {
		data, err := s.read(path.Join(directory, name))
		if err != nil {
			return err
		}
		bundle.Write(bytes.TrimSpace(data))
		bundle.WriteByte('\n')
		s.used[path.Join(directory, name)] = true
	}
	t.file("etc/ssl/certs/ca-certificates.crt", 0o644, bundle.Bytes())
	return nil
}

// binaryLayer has holdfast alone.
func binaryLayer(o options) (*tree, error) {
	data, err := os.ReadFile(o.binary)
	if err != nil {
		return nil, err
	}
	if err := checkStatic(o.binary, data, o.arch); err != nil {
		return nil, err
	}
	t := newTree()
	t.file("holdfast", 0o755, data)
	return t, nil
}

// mergedDirectories are links into /usr (Debian's merged /usr).
func mergedDirectories() []string { return []string{"bin", "lib", "lib64", "sbin"} }

// merged is the name of a file in a root whose /lib is a link to /usr/lib.
func merged(name string) string {
	name = path.Clean("/" + name)
	first, _, _ := strings.Cut(name[1:], "/")
	for _, directory := range mergedDirectories() {
		if first == directory {
			return "/usr" + name
		}
	}
	return name
}
