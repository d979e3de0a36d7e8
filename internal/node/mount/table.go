// Package mount mounts, binds and unmounts without trusting any path twice: a
// path is resolved once, to a descriptor, without following a symlink, and all
// work is done on that descriptor. What is mounted where is read from the
// kernel every time; nothing is remembered.
package mount

import (
	"fmt"

	"github.com/moby/sys/mountinfo"
)

// Table is the mount table of this process, in the order of mounting.
func Table() ([]*mountinfo.Info, error) {
	table, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	return table, nil
}
