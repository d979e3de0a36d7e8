package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/durable"
	"github.com/holdfast-csi/holdfast/internal/linux/blockdev"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

const (
	volumesDir   = "volumes"
	snapshotsDir = "snapshots"
	instancesDir = "instances"
	recordFile   = "devices.json"
)

var _ world.Devices = (*Disks)(nil)

// validID matches the IDs that may be part of a path.
var validID = regexp.MustCompile(`^(vol|snap|i)-[0-9a-f]{8,17}$`)

// Disks has the data and devices below a directory. It is not safe for concurrent use; the
// world calls it with its lock.
type Disks struct {
	dir     string
	root    *os.Root
	loops   map[string]*blockdev.Loop   // by volume, attached by us and held
	guests  map[string]map[string]guest // by instance, by volume
	intents []string                    // volumes that may have a loop device
}

// guest is a volume in an instance.
type guest struct {
	name  string // nvme1n1, xvdba
	index int    // of the NVMe controller
	xen   bool
}

// Open opens a directory, which it creates if it is missing. It frees the devices of an
// earlier process that are not in use.
func Open(dir string) (world.Devices, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	d := &Disks{dir: dir, root: root, loops: map[string]*blockdev.Loop{}, guests: map[string]map[string]guest{}}
	if err := d.takeOver(); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", dir, err), root.Close())
	}
	return d, nil
}

func (d *Disks) takeOver() error {
	for _, name := range []string{volumesDir, snapshotsDir} {
		if err := durable.Mkdir(d.root, name, 0o700); err != nil {
			return err
		}
	}
	if err := d.root.RemoveAll(instancesDir); err != nil {
		return err
	}
	if err := durable.Mkdir(d.root, instancesDir, 0o755); err != nil {
		return err
	}
	data, err := d.root.ReadFile(recordFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &d.intents); err != nil {
		return fmt.Errorf("%s is damaged: %w", recordFile, err)
	}
	return d.freeUnused()
}

// freeUnused frees the loop devices of the intents that neither this process nor
// another uses; the intents of the others stay.
func (d *Disks) freeUnused() error {
	for _, id := range slices.Clone(d.intents) {
		if d.loops[id] != nil {
			continue
		}
		inUse, err := d.freeLoops(id)
		if err != nil {
			return err
		}
		if !inUse {
			if err := d.removeIntent(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteIntent records that the volume is about to have a loop device.
func (d *Disks) noteIntent(id string) error {
	if slices.Contains(d.intents, id) {
		return nil
	}
	d.intents = append(d.intents, id)
	return d.saveIntents()
}

func (d *Disks) removeIntent(id string) error {
	d.intents = slices.DeleteFunc(d.intents, func(other string) bool { return other == id })
	return d.saveIntents()
}

func (d *Disks) saveIntents() error {
	data, err := json.Marshal(d.intents)
	if err != nil {
		return err
	}
	return durable.WriteFile(d.root, recordFile, data, 0o600)
}

// Close detaches all devices. Those that are in use stay until their last user
// closes them, and are named in the error.
func (d *Disks) Close() error {
	var all []error
	for id, guests := range d.guests {
		for volumeID := range guests {
			all = append(all, d.hide(id, volumeID))
		}
	}
	for id := range d.loops {
		all = append(all, d.release(id))
	}
	if len(d.intents) > 0 {
		all = append(all, d.freeUnused())
	}
	for _, id := range d.intents {
		all = append(all, fmt.Errorf("the device of %s is still in use; unmount it", id))
	}
	return errors.Join(append(all, d.root.Close())...)
}

func check(id string) error {
	if !validID.MatchString(id) {
		return fmt.Errorf("%q is not an ID", id)
	}
	return nil
}

func volumeFile(id string) string   { return filepath.Join(volumesDir, id+".img") }
func snapshotFile(id string) string { return filepath.Join(snapshotsDir, id+".img") }
