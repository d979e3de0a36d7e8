// Package binds shows volumes at directories of the machine, in addition to where the
// host has them: bind mounts that every process sees. It records each mount before it
// makes it, and unmounts only what it recorded.
package binds

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Bind is one volume at one directory.
type Bind struct {
	// Source is where the host has the volume, a mount point.
	Source string
	// Target is an absolute path of an existing empty directory.
	Target   string
	ReadOnly bool
}

// recordFile lists the bind mounts, in the directory that the caller names.
const recordFile = "binds.json"

// record is a mount that this package made, or was about to make.
type record struct {
	Target string
	// Device and Root are those of the mount, as mountinfo has them
	// (proc_pid_mountinfo(5)): with the target they distinguish it from others.
	Device, Root string
	// BootID is of the boot that it was made in: in another one it is not there.
	BootID string
}

// readRecords returns none if the file does not exist.
func readRecords(directory string) (records []record, err error) {
	data, err := os.ReadFile(filepath.Join(directory, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &records)
	}
	if err != nil {
		return nil, fmt.Errorf("read the list of bind mounts: %w", err)
	}
	return records, nil
}
