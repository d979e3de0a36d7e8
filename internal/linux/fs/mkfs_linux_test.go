package fs

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
	"github.com/holdfast-csi/holdfast/internal/linux/command"
	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

// Also for old kernels.
func TestMakeCommand_passesTheFormatOptions(t *testing.T) {
	const mk = "mkfs.ext4 -t ext4 -F -q -m 0 -E lazy_itable_init=1,lazy_journal_init=1,nodiscard "
	tests := []struct {
		fsType  string
		options backend.FormatOptions
		want    string
	}{
		{Ext4, backend.FormatOptions{}, mk + "/dev/x"},
		{Ext4, backend.FormatOptions{LegacyXFS: true}, mk + "/dev/x"},
		{Ext4, backend.FormatOptions{BlockSize: 4096, InodeSize: 512, BytesPerInode: 8192, Inodes: 1000}, mk + "-b 4096 -I 512 -i 8192 -N 1000 /dev/x"},
		{Ext4, backend.FormatOptions{BigAlloc: true, ClusterSize: 65536, Encrypt: true}, mk + "-O bigalloc -C 65536 -O encrypt /dev/x"},
		{Ext3, backend.FormatOptions{BlockSize: 1024}, strings.Replace(mk, "-t ext4", "-t ext3", 1) + "-b 1024 /dev/x"},
		{XFS, backend.FormatOptions{}, "mkfs.xfs -f -q -K /dev/x"},
		{XFS, backend.FormatOptions{BlockSize: 2048, InodeSize: 1024}, "mkfs.xfs -f -q -K -b size=2048 -i size=1024 /dev/x"},
		{XFS, backend.FormatOptions{InodeSize: 1024, LegacyXFS: true}, "mkfs.xfs -f -q -K -m bigtime=0,inobtcount=0,reflink=0 -i size=1024,nrext64=0 /dev/x"},
	}
	for _, test := range tests {
		c, err := makeCommand(test.fsType, backend.Device{Path: "/dev/x", Format: test.options}, "")
		if diff := cmp.Diff(test.want, c.Name+" "+strings.Join(c.Args, " ")); err != nil || diff != "" {
			t.Errorf("%s %+v: %v\n%s", test.fsType, test.options, err, diff)
		}
	}
}

func TestMakeCommand_refusesUnsupportedOptions(t *testing.T) {
	for _, test := range []struct {
		fsType  string
		options backend.FormatOptions
	}{
		{XFS, backend.FormatOptions{BytesPerInode: 4096}},
		{XFS, backend.FormatOptions{Inodes: 1}},
		{XFS, backend.FormatOptions{BigAlloc: true}},
		{Ext3, backend.FormatOptions{Encrypt: true}},
		{Ext3, backend.FormatOptions{BigAlloc: true}},
		{Ext4, backend.FormatOptions{ClusterSize: 65536}},
		{Btrfs, backend.FormatOptions{BlockSize: 4096}},
		{Btrfs, backend.FormatOptions{InodeSize: 512}},
	} {
		if _, err := makeCommand(test.fsType, backend.Device{Path: "/dev/x", Format: test.options}, ""); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s %+v: %v", test.fsType, test.options, err)
		}
	}
}

// formatted makes a filesystem on a loop device and returns a tool's description of it.
func formatted(t *testing.T, fsType string, size int64, options backend.FormatOptions, tool ...string) string {
	t.Helper()
	file := nodetest.File(t, nodetest.Dir(t), "data", size)
	loop, err := blockdev.AttachLoop(t.Context(), blockdev.LoopConfig{File: file, Path: file.Name(), AutoClear: true})
	if err != nil {
		t.Fatal(err)
	}
	defer loop.Close()
	device := backend.Device{Path: loop.Path, Number: loop.Number, Size: loop.Size, Format: options}
	if err := Make(t.Context(), command.NewSystem(), fsType, device, ""); err != nil {
		t.Fatal(err)
	}
	output, err := exec.Command(tool[0], append(tool[1:], loop.Path)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	point := filepath.Join(t.TempDir())
	if err := unix.Mount(loop.Path, point, fsType, 0, ""); err != nil {
		t.Errorf("mount: %v", err)
	} else if err := unix.Unmount(point, 0); err != nil {
		t.Error(err)
	}
	return strings.Join(strings.Fields(string(output)), " ")
}

func wantWords(t *testing.T, output string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(output, word) {
			t.Errorf("%q is not in %s", word, output)
		}
	}
}

func TestMake_followsTheOptions(t *testing.T) {
	ext4 := formatted(t, Ext4, 64*mebibyte, backend.FormatOptions{BlockSize: 4096, InodeSize: 512, Inodes: 2048, Encrypt: true}, "dumpe2fs", "-h")
	wantWords(t, ext4, "Block size: 4096", "Inode size: 512", "Inode count: 2048", "encrypt", "has_journal", "extent")
	clusters := formatted(t, Ext4, 64*mebibyte, backend.FormatOptions{BigAlloc: true, ClusterSize: 65536, BytesPerInode: 65536}, "dumpe2fs", "-h")
	wantWords(t, clusters, "bigalloc", "Cluster size: 65536", "Inode count: 1024")
	ext3 := formatted(t, Ext3, 64*mebibyte, backend.FormatOptions{BlockSize: 1024}, "dumpe2fs", "-h")
	wantWords(t, ext3, "Block size: 1024", "has_journal")
	if strings.Contains(ext3, "extent") {
		t.Errorf("an ext3 with extents: %s", ext3)
	}
	xfs := formatted(t, XFS, 300*mebibyte, backend.FormatOptions{BlockSize: 2048, InodeSize: 1024, LegacyXFS: true}, "xfs_db", "-r", "-c", "version", "-c", "sb 0", "-c", "p blocksize inodesize")
	wantWords(t, xfs, "blocksize = 2048", "inodesize = 1024")
	for _, feature := range []string{"BIGTIME", "INOBTCNT", "REFLINK", "NREXT64"} {
		if strings.Contains(strings.ToUpper(xfs), feature) {
			t.Errorf("a legacy xfs with %s: %s", feature, xfs)
		}
	}
}
