package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-csi/holdfast/test/binary"
)

// unpack lays the image's layers into a directory, as a runtime does.
func unpack(t *testing.T, archive []byte) string {
	t.Helper()
	root := t.TempDir()
	members := files(t, archive)
	for _, name := range decode[[]dockerEntry](t, members["manifest.json"])[0].Layers {
		for reader := tar.NewReader(bytes.NewReader(gunzip(t, members[name]))); ; {
			header, err := reader.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err == nil {
				err = unpackOne(filepath.Join(root, header.Name), header, reader)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

func unpackOne(path string, header *tar.Header, contents io.Reader) error {
	mode := os.FileMode(header.Mode).Perm()
	switch header.Typeflag {
	case tar.TypeDir:
		if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		return nil
	case tar.TypeSymlink:
		return os.Symlink(header.Linkname, path)
	}
	data, err := io.ReadAll(contents)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, mode)
}

// inside runs a program in the unpacked image.
func inside(t *testing.T, root string, program string, arguments ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, arguments...)
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	command.Dir = "/"
	command.Env = []string{"PATH=/usr/sbin:/usr/bin"}
	output, err := command.CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", program, strings.Join(arguments, " "), err, output)
	}
	return string(output)
}

// realImage is the unpacked image with the real binary, and with /proc as every
// runtime mounts it.
func realImage(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("chroot needs root")
	}
	o := testOptions(t)
	var err error
	if o.binary, err = binary.Build(t.Context(), t.TempDir(), "holdfast"); err != nil {
		t.Fatal(err)
	}
	root := unpack(t, testImage(t, o))
	proc := filepath.Join(root, "proc")
	if err := syscall.Mount("proc", proc, "proc", syscall.MS_RDONLY, ""); err != nil {
		t.Fatalf("mount %s: %v", proc, err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(proc, 0); err != nil {
			t.Errorf("unmount %s: %v", proc, err)
		}
	})
	return root
}

// TestImage_runsInAChroot runs the programs as the driver does, each on a file: the
// files that they open at run time must be in the image, too.
func TestImage_runsInAChroot(t *testing.T) {
	root := realImage(t)
	if got := inside(t, root, "/holdfast", "version"); strings.TrimSpace(got) == "" {
		t.Error("holdfast version says nothing")
	}
	tried := map[string]bool{}
	for _, step := range [][]string{
		{"mkfs.ext4", "-F", "-q", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", "/ext4"},
		{"e2fsck", "-f", "-p", "/ext4"},
		{"resize2fs", "/ext4", "500M"},
		{"mkfs.xfs", "-f", "-q", "-K", "/xfs"},
		{"xfs_repair", "/xfs"},
		{"mkfs.btrfs", "-f", "-q", "-K", "/btrfs"},
	} {
		blank(t, filepath.Join(root, strings.TrimPrefix(step[0], "mkfs.")), strings.HasPrefix(step[0], "mkfs."))
		inside(t, root, "/usr/sbin/"+step[0], step[1:]...)
		tried[step[0]] = true
	}
	for _, program := range programs() {
		if !tried[program] {
			t.Errorf("%s is in the image and was not tried", program)
		}
	}
}

// blank makes a sparse file if the case needs one.
func blank(t *testing.T, path string, wanted bool) {
	t.Helper()
	if !wanted {
		return
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(file.Truncate(400<<20), file.Close()); err != nil {
		t.Fatal(err)
	}
}
