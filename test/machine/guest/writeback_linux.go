package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// writeBack gives a part of a file to the disk without a flush (sync_file_range(2)). at and
// length are in bytes.
func writeBack(file *os.File, at, length int64) error {
	return unix.SyncFileRange(int(file.Fd()), at, length, unix.SYNC_FILE_RANGE_WRITE)
}
