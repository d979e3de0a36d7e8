package blockdev

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

// made creates a file and runs a tool that writes its format to it; FILE in an argument is
// replaced by the file's path.
func made(t *testing.T, size int64, command ...string) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	tool(t, path, command...)
	return file
}

func tool(t *testing.T, path string, command ...string) {
	t.Helper()
	arguments := make([]string, len(command))
	for i, argument := range command {
		arguments[i] = strings.ReplaceAll(argument, "FILE", path)
	}
	child := exec.Command(arguments[0], arguments[1:]...)
	child.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if output, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s (make test installs the tools)", arguments, err, output)
	}
}

func probeFile(t *testing.T, file *os.File) Content {
	t.Helper()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	content, err := Probe(t.Context(), file, info.Size(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

const testUUID = "01234567-89ab-cdef-0123-456789abcdef"

func TestProbe_filesystemsAsTheirToolsMakeThem(t *testing.T) {
	for _, c := range []struct {
		fsType  string
		size    int64
		command []string
	}{
		{"ext2", 8 * mebi, []string{"mke2fs", "-q", "-F", "-t", "ext2", "-L", "label", "-U", testUUID, "FILE"}},
		{"ext3", 16 * mebi, []string{"mke2fs", "-q", "-F", "-t", "ext3", "-L", "label", "-U", testUUID, "FILE"}},
		{"ext4", 16 * mebi, []string{"mke2fs", "-q", "-F", "-t", "ext4", "-L", "label", "-U", testUUID, "FILE"}},
		{"ext4", 16 * mebi, []string{"mke2fs", "-q", "-F", "-t", "ext4", "-O", "^metadata_csum,^64bit", "-L", "label", "-U", testUUID, "FILE"}},
		{"ext4", 64 * mebi, []string{"mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-L", "label", "-U", testUUID, "FILE"}},
		{"xfs", 300 * mebi, []string{"mkfs.xfs", "-q", "-L", "label", "-m", "uuid=" + testUUID, "FILE"}},
		{"xfs", 300 * mebi, []string{"mkfs.xfs", "-q", "-s", "size=4096", "-L", "label", "-m", "uuid=" + testUUID, "FILE"}},
		{"xfs", 300 * mebi, []string{"mkfs.xfs", "-q", "-L", "label", "-m", "crc=0,uuid=" + testUUID, "FILE"}},
		{"btrfs", 128 * mebi, []string{"mkfs.btrfs", "-q", "-L", "label", "-U", testUUID, "FILE"}},
		{"btrfs", 128 * mebi, []string{"mkfs.btrfs", "-q", "--csum", "sha256", "-L", "label", "-U", testUUID, "FILE"}},
		{"btrfs", 128 * mebi, []string{"mkfs.btrfs", "-q", "--csum", "xxhash", "-L", "label", "-U", testUUID, "FILE"}},
	} {
		t.Run(strings.Join(c.command, " "), func(t *testing.T) {
			content := probeFile(t, made(t, c.size, c.command...))
			want := Content{Kind: Filesystem, Type: c.fsType, UUID: testUUID, Label: "label", Size: c.size}
			if content != want {
				t.Errorf("got %+v; want %+v", content, want)
			}
		})
	}
}

func TestProbe_foreignFormatsAsTheirToolsMakeThem(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	luks := []string{"cryptsetup", "luksFormat", "-q", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--key-file", key}
	for name, command := range map[string][]string{
		"swap":            {"mkswap", "FILE"},
		"vfat 12":         {"mkfs.vfat", "-F", "12", "FILE"},
		"vfat 16":         {"mkfs.vfat", "-F", "16", "FILE"},
		"vfat 32":         {"mkfs.vfat", "-F", "32", "FILE"},
		"ntfs":            {"mkntfs", "-F", "-Q", "-s", "512", "-p", "0", "-H", "0", "-S", "0", "FILE"},
		"gpt":             {"sh", "-c", "echo 'label: gpt\n,,' | sfdisk -q FILE"},
		"dos":             {"sh", "-c", "echo 'label: dos\n,,' | sfdisk -q FILE"},
		"crypto_LUKS":     append(append([]string{}, luks...), "--type", "luks1", "FILE"),
		"crypto_LUKS two": append(append([]string{}, luks...), "--type", "luks2", "FILE"),
	} {
		t.Run(name, func(t *testing.T) {
			content := probeFile(t, made(t, 64*mebi, command...))
			want, _, _ := strings.Cut(name, " ")
			if content.Kind != Foreign || content.Type != want {
				t.Errorf("%+v", content)
			}
		})
	}
}

func TestProbe_physicalVolumeOfLVM(t *testing.T) {
	dir := nodetest.Dir(t)
	file := nodetest.File(t, dir, "pv", 64*mebi)
	loop := attach(t, LoopConfig{File: file, Path: file.Name()})
	tool(t, loop.Path, "pvcreate", "-qq", "--config", "devices{use_devicesfile=0} global{locking_type=1}", "FILE")
	if content := probeFile(t, file); content.Kind != Foreign || content.Type != "LVM2_member" {
		t.Fatalf("%+v", content)
	}
}

// A member of a mirror with its superblock at the end shows the filesystem of
// the mirror at the start.
func TestProbe_filesystemInAMirrorIsNotMountable(t *testing.T) {
	file := made(t, testSize, "mke2fs", "-q", "-F", "-t", "ext4", "FILE", "12M")
	if content := probeFile(t, file); content.Kind != Filesystem {
		t.Fatalf("%+v", content)
	}
	if _, err := file.WriteAt([]byte("\xfc\x4e\x2b\xa9\x00\x00\x00\x00\x5a\x00\x00\x00"), testSize-64*kibi); err != nil {
		t.Fatal(err)
	}
	if content := probeFile(t, file); content.Kind != Foreign || content.Type != "linux_raid_member" {
		t.Fatalf("%+v", content)
	}
}

// A file of a volume may contain anything, at any offset the filesystem chose.
func TestProbe_fileContentDoesNotHideASoundFilesystem(t *testing.T) {
	file := made(t, testSize, "mke2fs", "-q", "-F", "-t", "ext4", "FILE")
	for offset, part := range map[int64]string{
		128 * kibi:          "\x0c\xb1\xba\x00\x00\x00\x00\x00",
		testSize - 120*kibi: "\x0c\xb1\xba\x00\x00\x00\x00\x00",
		testSize - 512:      "EFI PART",
		4 * mebi:            "SKUL\xba\xbe\x00\x02",
		510:                 "\x55\xaa",
	} {
		if _, err := file.WriteAt([]byte(part), offset); err != nil {
			t.Fatal(err)
		}
	}
	if content := probeFile(t, file); content.Kind != Filesystem || content.Type != "ext4" {
		t.Fatalf("%+v", content)
	}
}

var smallest = map[string]struct {
	size    int64
	command []string
	super   int64
}{
	"ext4":  {16 * mebi, []string{"mke2fs", "-q", "-F", "-t", "ext4", "FILE"}, 1024},
	"xfs":   {300 * mebi, []string{"mkfs.xfs", "-q", "FILE"}, 0},
	"btrfs": {128 * mebi, []string{"mkfs.btrfs", "-q", "FILE"}, 64 * kibi},
}

func TestProbe_truncatedFilesystemIsCorrupt(t *testing.T) {
	for name, c := range smallest {
		t.Run(name, func(t *testing.T) {
			file := made(t, c.size, c.command...)
			if err := file.Truncate(c.size - mebi); err != nil {
				t.Fatal(err)
			}
			content := probeFile(t, file)
			if content.Kind != Corrupt || content.Type != name || !strings.Contains(content.Detail, "truncated") {
				t.Errorf("%+v", content)
			}
		})
	}
}

func TestProbe_damagedSuperblockIsCorrupt(t *testing.T) {
	// Bytes of each superblock that are neither magic nor checksum.
	offsets := map[string][]int64{"ext4": {0, 4, 0x18, 0x50, 0x100, 0x3fb}, "xfs": {8, 33, 105, 300}, "btrfs": {33, 80, 113, 1000, 4095}}
	for name, c := range smallest {
		t.Run(name, func(t *testing.T) {
			file := made(t, c.size, c.command...)
			for _, offset := range offsets[name] {
				flip(t, file, c.super+offset)
				if content := probeFile(t, file); content.Kind != Corrupt || content.Type != name {
					t.Errorf("byte %d: %+v", offset, content)
				}
				flip(t, file, c.super+offset)
			}
			if content := probeFile(t, file); content.Kind != Filesystem {
				t.Errorf("undamaged: %+v", content)
			}
		})
	}
}

func flip(t *testing.T, file *os.File, offset int64) {
	t.Helper()
	one := make([]byte, 1)
	_, readErr := file.ReadAt(one, offset)
	one[0] ^= 0xff
	_, writeErr := file.WriteAt(one, offset)
	if err := errors.Join(readErr, writeErr); err != nil {
		t.Fatal(err)
	}
}

// Without its superblock, the rest of the filesystem still prevents the
// device from counting as blank.
func TestProbe_zeroedSuperblockIsNotBlank(t *testing.T) {
	lengths := map[string]int64{"ext4": 1024, "xfs": 4096, "btrfs": 4096}
	for name, c := range smallest {
		t.Run(name, func(t *testing.T) {
			file := made(t, c.size, c.command...)
			if _, err := file.WriteAt(make([]byte, lengths[name]), c.super); err != nil {
				t.Fatal(err)
			}
			content := probeFile(t, file)
			if content.Kind != Unrecognized && content.Kind != Corrupt {
				t.Errorf("%+v", content)
			}
			if name == "btrfs" && content.Kind != Corrupt {
				t.Errorf("a btrfs has a copy at 64 MiB that shows it: %+v", content)
			}
		})
	}
}

func TestProbe_statesThatNeedACheck(t *testing.T) {
	t.Run("ext4 with errors", func(t *testing.T) {
		file := made(t, 16*mebi, "mke2fs", "-q", "-F", "-t", "ext4", "FILE")
		tool(t, file.Name(), "debugfs", "-w", "-R", "ssv state 2", "FILE")
		if content := probeFile(t, file); content.Kind != Filesystem || !content.HasErrors || content.NeedsCheck {
			t.Errorf("%+v", content)
		}
	})
	t.Run("ext2 not closed", func(t *testing.T) {
		file := made(t, 16*mebi, "mke2fs", "-q", "-F", "-t", "ext2", "FILE")
		tool(t, file.Name(), "debugfs", "-w", "-R", "ssv state 0", "FILE")
		if content := probeFile(t, file); content.Kind != Filesystem || !content.NeedsCheck {
			t.Errorf("%+v", content)
		}
	})
	t.Run("xfs that asks for repair", func(t *testing.T) {
		file := made(t, 300*mebi, "mkfs.xfs", "-q", "FILE")
		tool(t, file.Name(), "xfs_db", "-x", "-c", "sb 0", "-c", "write features_incompat 0x1b", "FILE")
		if content := probeFile(t, file); content.Kind != Filesystem || !content.HasErrors {
			t.Errorf("%+v", content)
		}
	})
}

func TestProbe_errorFlagOfBtrfs(t *testing.T) {
	file := made(t, 128*mebi, "mkfs.btrfs", "-q", "FILE")
	sb := make([]byte, btrfsSuperSize)
	if _, err := file.ReadAt(sb, btrfsSuperOffset); err != nil {
		t.Fatal(err)
	}
	little.PutUint64(sb[56:], little.Uint64(sb[56:])|btrfsFlagError)
	little.PutUint32(sb, crc32c(sb[32:]))
	if _, err := file.WriteAt(sb, btrfsSuperOffset); err != nil {
		t.Fatal(err)
	}
	if content := probeFile(t, file); content.Kind != Filesystem || !content.HasErrors {
		t.Fatalf("%+v", content)
	}
}

// Probe finds backup superblocks where the tools put them, also if everything before the
// second one is zeroed.
func TestProbe_backupSuperblocks(t *testing.T) {
	for _, c := range []struct {
		fsType  string
		size    int64
		zeroed  int64
		command []string
	}{
		{"ext4", 300 * mebi, 120 * mebi, []string{"mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "FILE"}},
		{"ext4", 64 * mebi, 7 * mebi, []string{"mke2fs", "-q", "-F", "-t", "ext4", "-b", "1024", "FILE"}},
		{"ext4", 60 * mebi, 31 * mebi, []string{"mke2fs", "-q", "-F", "-t", "ext4", "-b", "2048", "FILE"}},
		{"ext4", 5 * gibi, 4000 * mebi, []string{"mke2fs", "-q", "-F", "-t", "ext4", "-b", "65536", "FILE"}},
		{"ext4", 3 * gibi, 2040 * mebi, []string{"mke2fs", "-q", "-F", "-t", "ext4", "-O", "bigalloc", "FILE"}},
		{"ext4", 300 * mebi, 120 * mebi, []string{"mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-O", "meta_bg,^resize_inode", "FILE"}},
		{"ext4", 640 * mebi, 500 * mebi, []string{"mke2fs", "-q", "-F", "-t", "ext4", "-O", "sparse_super2,^resize_inode", "FILE"}},
		{"xfs", 512 * mebi, 100 * mebi, []string{"mkfs.xfs", "-q", "FILE"}},
		{"xfs", 701 * mebi, 90 * mebi, []string{"mkfs.xfs", "-q", "-d", "agcount=7", "FILE"}},
		{"btrfs", 256 * mebi, 63 * mebi, []string{"mkfs.btrfs", "-q", "FILE"}},
	} {
		t.Run(strings.Join(c.command, " "), func(t *testing.T) {
			file := made(t, c.size, c.command...)
			if err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, c.zeroed); err != nil {
				t.Fatal(err)
			}
			content := probeFile(t, file)
			if content.Kind != Corrupt || content.Type != c.fsType || !strings.Contains(content.Detail, "a copy is at offset") {
				t.Errorf("%+v; want a damaged %s by its backup", content, c.fsType)
			}
		})
	}
}
