//go:build !linux

package binds

import "errors"

// Make needs Linux.
func Make(_, _ string, desired []Bind) error {
	if len(desired) > 0 {
		return CheckTarget("")
	}
	return nil
}

// Remove does nothing, because Make mounts nothing.
func Remove(directory, _ string) error {
	_, err := readRecords(directory)
	return err
}

// CheckTarget needs Linux.
func CheckTarget(string) error { return errors.New("volumes are bound at directories on Linux only") }
