package fs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/linux/command"
)

// makeCommand is the mkfs to run. None discards first: the device is blank, and
// holes in the file of a thick volume would be the space it was promised. ext4
// leaves its tables to be zeroed by the kernel in the background: that the
// device was found blank says nothing of the ranges where no signature can be,
// so assume_storage_prezeroed is not for us.
func makeCommand(fsType string, device backend.Device, label string) (command.Command, error) {
	if err := checkFormat(fsType, device.Format); err != nil {
		return command.Command{}, err
	}
	var c command.Command
	switch fsType {
	case Ext4, Ext3:
		// -F: the device is a whole disk. -m 0: a volume has no root to reserve for.
		c = command.Command{Name: "mkfs.ext4", Args: []string{"-t", fsType, "-F", "-q", "-m", "0",
			"-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard"}}
		c.Args = append(c.Args, extOptions(device.Format)...)
	case XFS:
		c = command.Command{Name: "mkfs.xfs", Args: append([]string{"-f", "-q", "-K"}, xfsOptions(device.Format)...)}
	case Btrfs:
		c = command.Command{Name: "mkfs.btrfs", Args: []string{"-f", "-q", "-K"}}
	default:
		return c, fmt.Errorf("%w: filesystem %q; known are %s", backend.ErrInvalid, fsType, strings.Join(Supported(), ", "))
	}
	if label != "" {
		c.Args = append(c.Args, "-L", label)
	}
	c.Args = append(c.Args, device.Path)
	return c, nil
}

// checkFormat refuses options that a filesystem cannot grant, rather than leave
// them out. Values that mkfs would not take it refuses by itself.
func checkFormat(fsType string, o backend.FormatOptions) error {
	for _, option := range []struct {
		name  string
		asked bool
		by    string
	}{
		{"a block size", o.BlockSize != 0, "ext4 ext3 xfs"},
		{"an inode size", o.InodeSize != 0, "ext4 ext3 xfs"},
		{"bytes per inode", o.BytesPerInode != 0, "ext4 ext3"},
		{"a number of inodes", o.Inodes != 0, "ext4 ext3"},
		{"bigalloc", o.BigAlloc, Ext4},
		{"a cluster size", o.ClusterSize != 0, Ext4},
		{"encryption", o.Encrypt, Ext4},
	} {
		if option.asked && !strings.Contains(" "+option.by+" ", " "+fsType+" ") {
			return fmt.Errorf("%w: %s has no choice of %s; %s has",
				backend.ErrInvalid, fsType, option.name, strings.ReplaceAll(option.by, " ", ", "))
		}
	}
	if o.ClusterSize != 0 && !o.BigAlloc {
		return fmt.Errorf("%w: ext4 has clusters only with bigalloc", backend.ErrInvalid)
	}
	return nil
}

// extOptions are those of mke2fs(8).
func extOptions(o backend.FormatOptions) []string {
	var args []string
	for _, option := range []struct {
		flag  string
		value int64
	}{{"-b", o.BlockSize}, {"-I", o.InodeSize}, {"-i", o.BytesPerInode}, {"-N", o.Inodes}} {
		if option.value != 0 {
			args = append(args, option.flag, strconv.FormatInt(option.value, 10))
		}
	}
	if o.BigAlloc {
		args = append(args, "-O", "bigalloc")
	}
	if o.ClusterSize != 0 {
		args = append(args, "-C", strconv.FormatInt(o.ClusterSize, 10))
	}
	if o.Encrypt {
		args = append(args, "-O", "encrypt")
	}
	return args
}

// xfsOptions are those of mkfs.xfs(8). What LegacyXFS turns off came to Linux
// with 5.10 (bigtime, inobtcount) and 5.19 (nrext64); reflink is older, but is disabled
// for mounts by kernels in which it is experimental.
func xfsOptions(o backend.FormatOptions) []string {
	var args, inode []string
	if o.BlockSize != 0 {
		args = append(args, "-b", "size="+strconv.FormatInt(o.BlockSize, 10))
	}
	if o.InodeSize != 0 {
		inode = append(inode, "size="+strconv.FormatInt(o.InodeSize, 10))
	}
	if o.LegacyXFS {
		args = append(args, "-m", "bigtime=0,inobtcount=0,reflink=0")
		inode = append(inode, "nrext64=0")
	}
	if len(inode) > 0 {
		args = append(args, "-i", strings.Join(inode, ","))
	}
	return args
}
