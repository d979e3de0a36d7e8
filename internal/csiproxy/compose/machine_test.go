package compose

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

var errCrash = errors.New("the process died")

// machine is a Windows machine as far as the operations need one. At call number
// dieAt, counted from 1, the process dies: before the call has its effect, or
// after it.
type machine struct {
	api.Filesystem // nil: calls that are not modelled panic
	api.Disks
	api.Volumes
	api.ISCSI

	calls        []string
	dieAt        int
	diesWithDone bool

	directories map[string]bool   // those with something in them are true
	mounted     map[string]string // volume by directory
	fileSystems map[string]string // by volume, "" raw
	offline     map[uint32]bool
	partitioned map[uint32]string // first data volume
	portals     map[string]bool
	connected   bool
	kept        bool              // the session comes back after a restart
	keepFails   int               // the number of failures before it is stored
	disks       map[uint32]uint32 // by LUN of the target, where the session has them
	late        map[uint32]uint32 // those that come with a rescan
	offers      []string
	discoverErr error
}

const (
	volumeID = `\\?\Volume{0d7a1c52-6a4e-4b93-9d0f-3a2b1c4d5e6f}\`
	otherID  = `\\?\Volume{11111111-6a4e-4b93-9d0f-3a2b1c4d5e6f}\`
	staging  = `C:\var\lib\kubelet\plugins\x`
	target   = "iqn.2003-01.org.example:disks"
)

func newMachine() *machine {
	return &machine{
		directories: map[string]bool{}, mounted: map[string]string{}, fileSystems: map[string]string{volumeID: "", otherID: "NTFS"},
		offline: map[uint32]bool{5: true, 6: true}, partitioned: map[uint32]string{}, portals: map[string]bool{},
		disks: map[uint32]uint32{0: 5}, late: map[uint32]uint32{}, offers: []string{target},
	}
}

func (m *machine) host() api.Host {
	return api.Host{Filesystem: m, Disks: m, Volumes: m, ISCSI: initiator{m: m}}
}

// does makes a call's effect, unless the process dies before it.
func (m *machine) does(effect func() error, format string, args ...any) error {
	m.calls = append(m.calls, fmt.Sprintf(format, args...))
	dies := len(m.calls) == m.dieAt
	if dies && !m.diesWithDone {
		return errCrash
	}
	err := effect()
	if dies {
		return errCrash
	}
	return err
}

func (m *machine) Mkdir(_ context.Context, path string) error {
	return m.does(func() error {
		if path == `C:\windows` {
			return backend.ErrInvalid
		}
		if _, there := m.directories[path]; !there {
			m.directories[path] = false
		}
		return nil
	}, "Mkdir %s", path)
}

func (m *machine) At(_ context.Context, path string) (id string, err error) {
	err = m.does(func() error {
		if path == `C:\windows` {
			return backend.ErrInvalid
		}
		if id = m.mounted[path]; id == "" {
			return backend.ErrNotFound
		}
		return nil
	}, "At %s", path)
	return id, err
}

func (m *machine) FileSystem(_ context.Context, id string) (name string, err error) {
	err = m.does(func() error {
		if _, found := m.fileSystems[id]; !found {
			return backend.ErrNotFound
		}
		name = m.fileSystems[id]
		return nil
	}, "FileSystem")
	return name, err
}

func (m *machine) Format(_ context.Context, id, fileSystem string) error {
	return m.does(func() error {
		if m.fileSystems[id] != "" {
			return fmt.Errorf("%w: it would be formatted twice", backend.ErrPrecondition)
		}
		m.fileSystems[id] = "NTFS"
		return nil
	}, "Format %q", fileSystem)
}

func (m *machine) CheckMount(_ context.Context, id, path string) error {
	return m.does(func() error { return m.mayMount(id, path) }, "CheckMount")
}

func (m *machine) mayMount(id, path string) error {
	full, there := m.directories[path]
	switch {
	case !there:
		return backend.ErrNotFound
	case full, m.mounted[path] != "" && m.mounted[path] != id:
		return backend.ErrPrecondition
	}
	return nil
}

func (m *machine) Mount(_ context.Context, id, path string) error {
	return m.does(func() error {
		if err := m.mayMount(id, path); err != nil {
			return err
		}
		m.mounted[path] = id
		return nil
	}, "Mount")
}

func (m *machine) OnDisk(_ context.Context, disk, _ uint32) (ids []string, err error) {
	err = m.does(func() error {
		if id := m.partitioned[disk]; id != "" && !m.offline[disk] {
			ids = []string{id}
		}
		return nil
	}, "OnDisk")
	return ids, err
}

func (m *machine) Partition(_ context.Context, disk uint32, _ api.Identity) (id string, err error) {
	err = m.does(func() error {
		if _, already := m.partitioned[disk]; !already {
			m.partitioned[disk], m.offline[disk] = volumeID, false
		}
		if !m.offline[disk] {
			id = m.partitioned[disk]
		}
		return nil
	}, "Partition %d", disk)
	return id, err
}

func (m *machine) Online(_ context.Context, disk uint32) (online bool, err error) {
	err = m.does(func() error { online = !m.offline[disk]; return nil }, "Online %d", disk)
	return online, err
}

func (m *machine) SetOnline(_ context.Context, disk uint32, _ api.Identity, online bool) error {
	return m.does(func() error { m.offline[disk] = !online; return nil }, "SetOnline %d %t", disk, online)
}

func (m *machine) List(context.Context) (disks []api.Disk, err error) {
	err = m.does(func() error {
		if m.connected {
			for lun, number := range m.disks {
				disks = append(disks, api.Disk{Number: number, Online: !m.offline[number], Location: &api.DiskLocation{LUN: strconv.Itoa(int(lun))}})
			}
		}
		return nil
	}, "List")
	return disks, err
}

func (m *machine) Rescan(context.Context) error {
	return m.does(func() error {
		for lun, disk := range m.late {
			m.disks[lun] = disk
		}
		return nil
	}, "Rescan")
}

type initiator struct {
	api.ISCSI
	m *machine
}

func (i initiator) Disks(_ context.Context, portal api.Portal, iqn string) (disks []uint32, err error) {
	err = i.m.does(func() error {
		if portal.Address == "" || iqn == "bad name" {
			return backend.ErrInvalid
		}
		if i.m.connected {
			for _, disk := range i.m.disks {
				disks = append(disks, disk)
			}
		}
		slices.Sort(disks)
		return nil
	}, "Disks")
	return disks, err
}

func (i initiator) Portals(context.Context) (portals []api.Portal, err error) {
	err = i.m.does(func() error {
		for address := range i.m.portals {
			portals = append(portals, api.Portal{Address: address, Port: defaultPort})
		}
		return nil
	}, "Portals")
	return portals, err
}

func (i initiator) AddPortal(_ context.Context, portal api.Portal) error {
	return i.m.does(func() error { i.m.portals[portal.Address] = true; return nil }, "AddPortal")
}

func (i initiator) RemovePortal(_ context.Context, portal api.Portal) error {
	return i.m.does(func() error { delete(i.m.portals, portal.Address); return nil }, "RemovePortal")
}

func (i initiator) Discover(_ context.Context, portal api.Portal) (iqns []string, err error) {
	err = i.m.does(func() error {
		if !i.m.portals[portal.Address] {
			return backend.ErrNotFound
		}
		iqns = i.m.offers
		return i.m.discoverErr
	}, "Discover")
	return iqns, err
}

func (i initiator) Connect(_ context.Context, login api.ISCSILogin) error {
	return i.m.does(func() error {
		if login.Secret.Reveal() == "wrong secret" {
			return backend.ErrCredentials
		}
		i.m.connected = true
		if i.m.keepFails > 0 {
			i.m.keepFails--
			return backend.ErrInUse
		}
		i.m.kept = true
		return nil
	}, "Connect")
}

func (i initiator) Disconnect(context.Context, api.Portal, string) error {
	return i.m.does(func() error { i.m.connected, i.m.kept = false, false; return nil }, "Disconnect")
}
