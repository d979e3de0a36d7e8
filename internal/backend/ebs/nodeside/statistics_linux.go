package nodeside

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/backend/ebs/nodestats"
	"github.com/holdfast-csi/holdfast/internal/linux/mount"
)

// statistics is the Source of the collector of volumes' statistics.
type statistics struct {
	n    *Node
	read func(disk *os.File) (nodestats.Page, error)
}

var _ nodestats.Source = statistics{}

// registerStatistics registers the collector; Close unregisters it.
func (n *Node) registerStatistics(read func(*os.File) (nodestats.Page, error)) error {
	if n.options.Registerer == nil {
		return nil
	}
	n.collector = nodestats.New(nodestats.Options{Source: statistics{n, read}, Logger: n.options.Logger})
	if err := n.options.Registerer.Register(n.collector); err != nil {
		return fmt.Errorf("metrics of volumes: %w", err)
	}
	return nil
}

// InstanceID is the node ID.
func (s statistics) InstanceID(ctx context.Context) (string, error) { return s.n.identity.id(ctx) }

// Volumes are the volumes that the driver has opened, and those that are mounted below
// MountPrefix. The disks of a Xen instance have no statistics.
func (s statistics) Volumes() ([]string, error) {
	disks, err := s.n.sys.nvmeDisks()
	if err != nil {
		return nil, err
	}
	claimed, err := s.n.records.claimed()
	if err != nil {
		return nil, err
	}
	table, err := mount.Table()
	if err != nil {
		return nil, err
	}
	volumes := map[string]bool{}
	for _, d := range disks {
		id := idOf(d.serial)
		if id == "" || d.accept(s.n.options.Model) != nil {
			continue
		}
		staged, err := s.isStaged(d, table)
		if err != nil {
			return nil, err
		}
		if claimed[id] || staged {
			volumes[id] = true
		}
	}
	return slices.Sorted(maps.Keys(volumes)), nil
}

// isStaged reports whether a disk or a partition of it is mounted below MountPrefix.
func (s statistics) isStaged(d disk, table []*mountinfo.Info) (bool, error) {
	prefix := s.n.options.MountPrefix
	if prefix == "" {
		return false, nil
	}
	targets, err := s.n.targetsOf(d)
	return slices.ContainsFunc(targets, func(t target) bool {
		return slices.ContainsFunc(t.mountPoints(table),
			func(point string) bool { return strings.HasPrefix(point, prefix) })
	}), err
}

// Statistics asks the disk that has the volume's serial number before and after it is
// opened.
func (s statistics) Statistics(id string) (nodestats.Page, error) {
	serial, err := serialOf(id)
	if err != nil {
		return nodestats.Page{}, err
	}
	d, err := s.n.sys.withSerial(serial, s.n.options.Model)
	if err != nil {
		return nodestats.Page{}, err
	}
	if d == nil {
		return nodestats.Page{}, fmt.Errorf("disk of volume %s: %w", id, backend.ErrNotFound)
	}
	page, err := s.ask(wholeOf(*d))
	if err == nil {
		return page, nil
	}
	if unchanged, failed := s.n.unchanged(wholeOf(*d)); failed == nil && !unchanged {
		err = fmt.Errorf("%w: %w", backend.ErrNotFound, err)
	}
	return nodestats.Page{}, err
}

func (s statistics) ask(t target) (nodestats.Page, error) {
	file, err := s.n.open(t)
	if err != nil {
		return nodestats.Page{}, err
	}
	page, err := s.read(file)
	return page, errors.Join(err, file.Close())
}
