package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-csi/holdfast/internal/host/volumes"
)

// marker is the file in each mounted volume: it is visible as long as the volume is
// mounted, and its loss is the loss of data.
const marker = "data"

// mounted is one entry of the mount table.
type mounted struct {
	path, volume string
	block        bool
}

// machine has the mount table. A mount is a directory with the volume's data; the
// directories below the root are real.
type machine struct {
	root   string
	boot   int
	mounts []mounted
	// busy are the mount points that a program outside of the host's pods uses.
	busy    map[string]bool
	devices map[string]int // by volume
}

func newMachine(root string) *machine {
	return &machine{root: root, boot: 1, busy: map[string]bool{}, devices: map[string]int{}}
}

func (m *machine) bootID() string { return fmt.Sprintf("boot-%d", m.boot) }

// Below implements volumes.Mounts.
func (m *machine) Below(directory string) ([]string, error) {
	var paths []string
	for _, at := range m.mounts {
		if !at.block && (at.path == directory || strings.HasPrefix(at.path, directory+"/")) {
			paths = append(paths, at.path)
		}
	}
	return paths, nil
}

// At implements volumes.Mounts.
func (m *machine) At(path string, _ bool) (volumes.PathInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return volumes.PathInfo{}, err
	}
	at := volumes.PathInfo{Directory: info.IsDir(), Device: "0:1"}
	if there := m.find(path); there != nil {
		at.Device = m.device(there.volume)
		at.Block, at.Mounted = there.block, !there.block
	}
	return at, nil
}

// OthersOf implements volumes.Mounts.
func (m *machine) OthersOf(path string) ([]string, error) {
	own := m.find(path)
	if own == nil {
		return nil, nil
	}
	var others []string
	for _, at := range m.mounts {
		if at.volume == own.volume && at.path != path && !at.block {
			others = append(others, at.path)
		}
	}
	return others, nil
}

func (m *machine) device(volume string) string {
	if m.devices[volume] == 0 {
		m.devices[volume] = len(m.devices) + 1
	}
	return fmt.Sprintf("259:%d", m.devices[volume])
}

func (m *machine) find(path string) *mounted {
	at := slices.IndexFunc(m.mounts, func(one mounted) bool { return one.path == path })
	if at < 0 {
		return nil
	}
	return &m.mounts[at]
}

// mount mounts a volume, unless it is mounted there. A block volume is a file, which stands
// for the device.
func (m *machine) mount(path, volume string, block bool) error {
	if there := m.find(path); there != nil {
		if there.volume != volume {
			return fmt.Errorf("volume %s is mounted at %s", there.volume, path)
		}
		return nil
	}
	if block {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return err
		}
	} else if err := errors.Join(os.MkdirAll(path, 0o750), os.WriteFile(filepath.Join(path, marker), []byte(volume), 0o600)); err != nil {
		return err
	}
	m.mounts = append(m.mounts, mounted{path: path, volume: volume, block: block})
	return nil
}

var errBusy = errors.New("target is busy")

// unmount unmounts what is at a path, and removes the path if remove says so.
func (m *machine) unmount(path string, remove bool) error {
	if m.busy[path] {
		return errBusy
	}
	if there := m.find(path); there != nil {
		if !there.block {
			if err := os.Remove(filepath.Join(path, marker)); err != nil {
				return err
			}
		}
		m.mounts = slices.DeleteFunc(m.mounts, func(one mounted) bool { return one.path == path })
	}
	if !remove {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// reboot ends all mounts. The directories stay, as on a disk.
func (m *machine) reboot() error {
	m.boot++
	m.busy = map[string]bool{}
	var failed error
	for len(m.mounts) > 0 {
		failed = errors.Join(failed, m.unmount(m.mounts[0].path, false))
	}
	return failed
}

// lost returns an error if a mounted volume lacks its data. The host may remove the
// file of a block volume whose use was given up: it is not a mount point.
func (m *machine) lost(givenUp func(volume string) bool) error {
	m.mounts = slices.DeleteFunc(m.mounts, func(at mounted) bool {
		_, err := os.Lstat(at.path)
		return at.block && errors.Is(err, fs.ErrNotExist) && givenUp(at.volume)
	})
	for _, at := range m.mounts {
		path := filepath.Join(at.path, marker)
		if at.block {
			path = at.path
		}
		if _, err := os.Lstat(path); err != nil {
			return fmt.Errorf("volume %s lost its data at %s: %w", at.volume, at.path, err)
		}
	}
	return nil
}
