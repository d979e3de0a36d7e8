package winetest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// removeTree deletes path and everything below it, and enters no reparse point. It
// asks GetFileAttributes what one is: wine's Lstat shows a link made from Linux
// as the directory that it leads to.
func removeTree(path string) error {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return err
	}
	attributes, err := windows.GetFileAttributes(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "attributes", Path: path, Err: err}
	}
	const link = windows.FILE_ATTRIBUTE_REPARSE_POINT
	if attributes&windows.FILE_ATTRIBUTE_DIRECTORY != 0 && attributes&link == 0 {
		if err := removeContents(path); err != nil {
			return err
		}
	}
	return os.Remove(path) // of a link: the link itself
}

func removeContents(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
