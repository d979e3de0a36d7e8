//go:build !linux

package binds

import "errors"

// Place needs Linux.
func Place(_, _ string, desired []Bind) error {
	if len(desired) > 0 {
		return CheckTarget("")
	}
	return nil
}

// Remove has nothing to do where Place does nothing.
func Remove(directory, _ string) error {
	_, err := readRecords(directory)
	return err
}

// CheckTarget needs Linux.
func CheckTarget(string) error { return errors.New("volumes are bound at directories on Linux only") }
