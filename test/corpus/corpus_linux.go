// Package corpus makes disk images that must never be formatted: filesystems,
// partition tables, members of volume groups and arrays, as their own tools make
// them, then damaged; and data of no known kind at any offset. The tests of the
// node engine and the benchmark ask of each whether it would be formatted.
package corpus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
)

const (
	kibi = 1 << 10
	mebi = 1 << 20
	gibi = 1 << 30
)

// Image is one image, which Make writes to a file.
type Image struct {
	Name string
	Size int64 // bytes; of the file after Make
	base string
	// from is the size of the base, of which the head and the tail are zeroed.
	from, head, tail int64
	// flip is the offset of a byte that is inverted, or -1.
	flip int64
	// data is the content at an offset of an image without a base.
	data    []byte
	offset  int64
	unknown bool
}

// base is an image as a tool makes it; FILE is replaced by its path, DEVICE by a loop
// device over it.
type base struct {
	name    string
	size    int64
	command []string
}

func bases(key string) []base {
	luks := []string{"cryptsetup", "luksFormat", "-q", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--key-file", key}
	ext := func(arguments ...string) []string {
		return append(append([]string{"mke2fs", "-q", "-F"}, arguments...), "FILE")
	}
	shell := func(script string) []string { return []string{"sh", "-c", script} }
	return []base{
		{"ext4", 640 * mebi, ext("-t", "ext4")},
		{"ext4-1k", 64 * mebi, ext("-t", "ext4", "-b", "1024")},
		{"ext4-2k", 160 * mebi, ext("-t", "ext4", "-b", "2048")},
		{"ext4-64k", 9 * gibi, ext("-t", "ext4", "-b", "65536")},
		{"ext4-bigalloc", 3 * gibi, ext("-t", "ext4", "-O", "bigalloc")},
		{"ext4-meta_bg", 640 * mebi, ext("-t", "ext4", "-O", "meta_bg,^resize_inode")},
		{"ext4-sparse_super2", 640 * mebi, ext("-t", "ext4", "-O", "sparse_super2,^resize_inode")},
		{"ext3", 300 * mebi, ext("-t", "ext3", "-b", "4096")},
		{"ext2", 300 * mebi, ext("-t", "ext2", "-b", "4096", "-O", "^sparse_super,^resize_inode")},
		{"xfs", 512 * mebi, []string{"mkfs.xfs", "-q", "FILE"}},
		{"xfs-7ag", 701 * mebi, []string{"mkfs.xfs", "-q", "-d", "agcount=7", "FILE"}},
		{"xfs-1k", 600*mebi + 5*kibi, []string{"mkfs.xfs", "-q", "-b", "size=1024", "FILE"}},
		{"btrfs", 256 * mebi, []string{"mkfs.btrfs", "-q", "FILE"}},
		{"vfat12", 8 * mebi, []string{"mkfs.vfat", "-F", "12", "FILE"}},
		{"vfat32", 64 * mebi, []string{"mkfs.vfat", "-F", "32", "FILE"}},
		{"ntfs", 64 * mebi, []string{"mkntfs", "-F", "-Q", "-q", "-s", "512", "-p", "0", "-H", "0", "-S", "0", "FILE"}},
		{"swap", 64 * mebi, []string{"mkswap", "FILE"}},
		{"gpt", 64 * mebi, shell("echo 'label: gpt\n,,' | sfdisk -q FILE")},
		{"dos", 64 * mebi, shell("echo 'label: dos\n,,' | sfdisk -q FILE")},
		{"gpt-ext4", 64 * mebi, shell("echo 'label: gpt\n,,' | sfdisk -q FILE && mke2fs -q -F -t ext4 -E offset=1048576 FILE 60M")},
		{"luks1", 64 * mebi, append(append([]string{}, luks...), "--type", "luks1", "FILE")},
		{"luks2", 64 * mebi, append(append([]string{}, luks...), "--type", "luks2", "FILE")},
		{"lvm", 64 * mebi, []string{"pvcreate", "-qq", "--metadatacopies", "2", "--config", "devices{use_devicesfile=0} global{locking_type=1}", "DEVICE"}},
	}
}

// synthetic are formats whose tools write to devices that are in use only: what
// they leave is written here, as the kernel's headers have it.
var synthetic = []struct {
	name string
	at   func(size int64) int64
	data string
}{
	{"md-0.90", func(size int64) int64 { return size/(64*kibi)*(64*kibi) - 64*kibi }, "\xfc\x4e\x2b\xa9\x00\x00\x00\x00\x5a\x00\x00\x00"},
	{"md-1.0", func(size int64) int64 { return (size/512 - 16) &^ 7 * 512 }, "\xfc\x4e\x2b\xa9\x01\x00\x00\x00"},
	{"md-1.1", func(int64) int64 { return 0 }, "\xfc\x4e\x2b\xa9\x01\x00\x00\x00"},
	{"md-1.2", func(int64) int64 { return 4 * kibi }, "\xfc\x4e\x2b\xa9\x01\x00\x00\x00"},
	{"zfs-label-3", func(size int64) int64 { return size/(256*kibi)*(256*kibi) - 128*kibi }, "\x0c\xb1\xba\x00\x00\x00\x00\x00"},
	{"gpt-backup-4k", func(size int64) int64 { return size - 4*kibi }, "EFI PART"},
	{"f2fs-second", func(int64) int64 { return 5 * kibi }, "\x10\x20\xf5\xf2"},
	{"exfat-backup", func(int64) int64 { return 12*512 + 3 }, "EXFAT   "},
	{"ext4-backup", func(int64) int64 { return 128*mebi + 56 }, "\x53\xef"},
	{"btrfs-mirror", func(int64) int64 { return 64*mebi + 64 }, "_BHRfS_M"},
	{"btrfs-second-mirror", func(int64) int64 { return 256*gibi + 64 }, "_BHRfS_M"},
}

// Corpus is the list of images, and the bases that they are made from.
type Corpus struct {
	Images []Image
	dir    string
}

// New makes the bases below dir and lists at least 2,000 images, always the same.
// An image that holds nothing but zeros is not among them: it may be formatted.
func New(ctx context.Context, dir string) (*Corpus, error) {
	c := &Corpus{dir: dir}
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte("secret"), 0o600); err != nil {
		return nil, err
	}
	for _, b := range bases(key) {
		if err := c.makeBase(ctx, b); err != nil {
			return nil, fmt.Errorf("corpus: %s: %w", b.name, err)
		}
		if err := c.derive(b); err != nil {
			return nil, fmt.Errorf("corpus: %s: %w", b.name, err)
		}
	}
	c.addData()
	return c, nil
}

func (c *Corpus) makeBase(ctx context.Context, b base) error {
	path := filepath.Join(c.dir, b.name)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(path, b.size); err != nil {
		return err
	}
	device := path
	if slices.Contains(b.command, "DEVICE") {
		loop, err := attach(ctx, path)
		if err != nil {
			return err
		}
		defer func() { _ = loop.Close() }()
		device = loop.Path
	}
	arguments := make([]string, len(b.command))
	for i, argument := range b.command {
		arguments[i] = strings.NewReplacer("FILE", path, "DEVICE", device).Replace(argument)
	}
	return run(ctx, arguments[0], arguments[1:]...)
}

// attach returns a device that goes away when it is closed.
func attach(ctx context.Context, path string) (*blockdev.Loop, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return blockdev.AttachLoop(ctx, blockdev.LoopConfig{File: file, Path: path, AutoClear: true})
}

func run(ctx context.Context, name string, arguments ...string) error {
	child := exec.CommandContext(ctx, name, arguments...)
	child.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if output, err := child.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s (make test-packages installs the tools)", name, err, output)
	}
	return nil
}

// derive lists the variants of a base: its head or tail zeroed or removed, a byte
// inverted, a larger device.
func (c *Corpus) derive(b base) error {
	path := filepath.Join(c.dir, b.name)
	add := func(name string, change func(*Image)) error {
		image := Image{Name: b.name + " " + name, Size: b.size, base: path, from: b.size, flip: -1}
		change(&image)
		left, err := image.dataLeft()
		if left {
			c.Images = append(c.Images, image)
		}
		return err
	}
	heads := []int64{0, 512, kibi, 2 * kibi, 4 * kibi, 8 * kibi, 64 * kibi, 68 * kibi, 128 * kibi, 512 * kibi, mebi, 2 * mebi, 4 * mebi, 8 * mebi, 16 * mebi, 32 * mebi, 100 * mebi}
	tails := []int64{0, 512, 4 * kibi, 64 * kibi, mebi, 4 * mebi}
	var failed []error
	for _, head := range heads {
		for _, tail := range tails {
			if head+tail < b.size && (head > 0 || tail > 0) {
				failed = append(failed, add(fmt.Sprintf("zeroed %d at the head, %d at the tail", head, tail),
					func(i *Image) { i.head, i.tail = head, tail }))
			}
		}
		for _, size := range []int64{b.size / 2, b.size - 4*kibi, b.size - mebi, b.size + mebi, 2 * b.size} {
			size = size &^ (4*kibi - 1)
			if head < size {
				failed = append(failed, add(fmt.Sprintf("of %d bytes, %d zeroed at the head", size, head),
					func(i *Image) { i.Size, i.head = size, head }))
			}
		}
	}
	for _, offset := range []int64{0, 3, 24, 510, 512, 512 + 24, 1024 + 56, 4086, 64*kibi + 64} {
		if offset < b.size {
			failed = append(failed, add(fmt.Sprintf("byte %d inverted", offset), func(i *Image) { i.flip = offset }))
		}
	}
	return errors.Join(failed...)
}

// Recognizable reports whether a superblock, a label or a table of a known format is
// at its offset. It is false for data of no known kind, and for bases of which more
// than the first MiB was zeroed or the end moved.
func (i *Image) Recognizable() bool {
	if i.base == "" {
		return !i.unknown
	}
	return i.head <= mebi && i.Size == i.from
}

// dataLeft reports whether something of the base is left, or the byte that is
// inverted.
func (i *Image) dataLeft() (bool, error) {
	if i.flip >= 0 {
		return true, nil
	}
	file, err := os.Open(i.base)
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	left := false
	err = i.eachData(file, func(data []byte, _ int64) error {
		if strings.Trim(string(data), "\x00") != "" {
			left = true
			return io.EOF
		}
		return nil
	})
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return left, err
}

// eachData visits the data of the base that the image keeps.
func (i *Image) eachData(file *os.File, visit func(data []byte, offset int64) error) error {
	end := min(i.from-i.tail, i.Size)
	for at := i.head; at < end; {
		start, err := file.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return err
		}
		hole, err := file.Seek(start, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		for hole = min(hole, end); start < hole; start += mebi {
			data := make([]byte, min(mebi, hole-start))
			if _, err := file.ReadAt(data, start); err != nil {
				return err
			}
			if err := visit(data, start); err != nil {
				return err
			}
		}
		at = max(hole, start)
	}
	return nil
}

// addData lists disks with only a little data: superblocks at their offsets, and data
// of no known kind anywhere.
func (c *Corpus) addData() {
	add := func(name string, size, offset int64, data []byte, unknown bool) {
		c.Images = append(c.Images, Image{Name: fmt.Sprintf("%s at %d of %d", name, offset, size), Size: size, flip: -1, data: data, offset: offset, unknown: unknown})
	}
	for _, s := range synthetic {
		for _, size := range []int64{64 * mebi, 129*mebi + 512*3, gibi, 300 * gibi} {
			if at := s.at(size); at+4*kibi <= size || at+512 <= size && at > size/2 {
				add(s.name, size, at, []byte(s.data), false)
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	text := []byte("a line of a log\n")
	for range 200 {
		size := (8*mebi + random.Int64N(gibi)) &^ (4*kibi - 1)
		noise := make([]byte, 4*kibi)
		for i := range noise {
			noise[i] = byte(random.Uint32()) | 1
		}
		add("noise", size, random.Int64N(size/(4*kibi))*4*kibi, noise, true)
		add("text", size, random.Int64N(size-int64(len(text))), text, true)
	}
}

// Written lists the ranges of a file that its filesystem does not know to be
// holes or unwritten (lseek(2), SEEK_DATA), for blockdev.Probe.
func Written(file *os.File) blockdev.Written {
	return func(visit func(offset, length int64) error) error {
		for at := int64(0); ; {
			start, err := file.Seek(at, unix.SEEK_DATA)
			if errors.Is(err, unix.ENXIO) {
				return nil
			}
			if err != nil {
				return err
			}
			if at, err = file.Seek(start, unix.SEEK_HOLE); err != nil {
				return err
			}
			if err := visit(start, at-start); err != nil {
				return err
			}
		}
	}
}

// Make writes the image to a new file.
func (i *Image) Make(path string) (err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := file.Truncate(i.Size); err != nil {
		return err
	}
	if i.base == "" {
		_, err := file.WriteAt(i.data, i.offset)
		return err
	}
	source, err := os.Open(i.base)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	err = i.eachData(source, func(data []byte, offset int64) error {
		_, err := file.WriteAt(data, offset)
		return err
	})
	if err != nil || i.flip < 0 {
		return err
	}
	one := make([]byte, 1)
	_, err = file.ReadAt(one, i.flip)
	one[0] ^= 0xff
	_, writeErr := file.WriteAt(one, i.flip)
	return errors.Join(err, writeErr)
}
