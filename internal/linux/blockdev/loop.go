package blockdev

import "os"

// LoopConfig says how a file becomes a loop device.
type LoopConfig struct {
	// File is the backing file, open for writing unless ReadOnly.
	File *os.File
	// Path is only shown, by losetup(8); the kernel keeps at most 63 bytes of it.
	Path     string
	ReadOnly bool
	// AutoClear has the kernel detach the device when its last user is gone.
	AutoClear bool
	// DirectIO asks for it; Loop.DirectIO reports whether it was granted.
	DirectIO bool
	// SectorSize is the logical block size in bytes; 0 leaves it to the kernel.
	SectorSize int
	// Discard lets discards punch holes into the file.
	Discard bool
}

// Loop is a loop device with its settings as read back.
type Loop struct {
	Index       int
	Path        string // /dev/loopN
	Number      uint64 // device number, st_rdev
	BackingFile string // as the kernel names it
	Size        int64  // bytes
	SectorSize  int    // bytes, logical
	ReadOnly    bool
	// FileReadOnly: the file was opened for reading only, so the device stays
	// read-only.
	FileReadOnly bool
	AutoClear    bool
	DirectIO     bool
	Discard      bool

	device uint64 // st_dev of the backing file
	inode  uint64 // st_ino of the backing file
	// unconfirmed: the filesystem of the backing file failed, and the kernel
	// has neither device nor inode. The path in sysfs identifies the file then.
	unconfirmed bool
	file        *os.File // keeps the device; nil when listed only
}
