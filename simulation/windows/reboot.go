package windows

import (
	"slices"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// Reboot starts the machine again. Disks get other numbers, SMB mappings and
// iSCSI sessions are gone, disks have their persistent attributes, volumes arrive
// again, services that start automatically run, and with MSiSCSI the persistent
// logins are made again. Handles of disks, and of volumes but C:, are void.
//
// Processes that use Calls survive it, so that a machine in another process of the
// test can be rebooted; EndProcesses ends them.
func (m *Machine) Reboot() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	for f := range m.files {
		if f.generation == f.node.fs.generation {
			f.node.countHandle(-1, f.shareDelete)
		}
	}
	clear(m.files)
	for _, s := range m.shares {
		clear(s.open)
	}
	m.mappings = nil
	for v := range m.allVolumes() {
		v.flush() // Windows shuts down in good order
	}
	for _, s := range slices.Clone(m.iscsi.sessions) {
		m.endSession(s)
	}
	m.renumber()
	for _, s := range m.services {
		s.state, s.due = serviceStopped, time.Time{}
	}
	for _, s := range m.services {
		if s.StartType == startAutomatic {
			_, _ = m.start(s, 0) // one that fails stays stopped
		}
	}
	m.advance()
}

// renumber takes all disks but the system's away and lets Windows find them in
// the opposite order.
func (m *Machine) renumber() {
	disks := m.disks
	m.disks = nil
	for _, d := range disks {
		if d.system {
			m.disks = append(m.disks, d)
			continue
		}
		m.takeOffline(d)
		d.present, d.last = false, int64(d.number)
	}
	slices.Reverse(disks)
	for _, d := range disks {
		if !d.system {
			m.attach(d, 0)
			d.waiting = false
		}
	}
	m.advance()
}

// StateDisk is a disk in a State.
type StateDisk struct {
	Number            uint32
	Serial            string
	Size              int64
	Known             int64 // the size that Windows knows
	Online, ReadOnly  bool
	Style             string
	Partitions        int
	Volumes           []StateVolume
	Present, IsSystem bool
}

// StateVolume is a volume in a State.
type StateVolume struct {
	Name, FileSystem  string
	Length            int64 // of the partition
	Total, Free       int64 // of the filesystem
	Paths             []string
	Arrived, IsLocked bool
}

// State is the state of the machine.
type State struct {
	Disks    []StateDisk
	Mappings []win32.SMBMapping
	Sessions []string // IQNs
	Services map[string]uint32
	Handles  int
	Losses   []string
}

// State describes the machine's present state.
func (m *Machine) State() State {
	handles, losses := m.OpenHandles(), m.Losses()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	state := State{Services: map[string]uint32{}, Handles: handles, Losses: losses}
	for _, d := range m.disks {
		state.Disks = append(state.Disks, m.diskState(d))
	}
	slices.SortFunc(state.Disks, func(a, b StateDisk) int { return int(a.Number) - int(b.Number) })
	for _, mapped := range m.mappings {
		state.Mappings = append(state.Mappings, win32.SMBMapping{Remote: mapped.remote, Status: m.mappingStatus(mapped)})
	}
	for _, s := range m.iscsi.sessions {
		state.Sessions = append(state.Sessions, s.target.IQN)
	}
	for _, s := range m.services {
		state.Services[s.Name] = s.state
	}
	return state
}

func (m *Machine) diskState(d *disk) StateDisk {
	state := StateDisk{
		Number: d.number, Serial: d.spec.Serial, Size: d.size, Known: d.known, Online: d.online(), ReadOnly: d.readOnly(),
		Style: d.table.style.String(), Partitions: len(d.table.partitions), Present: d.present, IsSystem: d.system,
	}
	for _, p := range d.table.partitions {
		v := p.volume
		if v == nil {
			continue
		}
		volume := StateVolume{
			Name: v.name, Length: p.Length, Paths: m.pathNames(v), Arrived: !time.Now().Before(v.arrives), IsLocked: v.lock != nil,
		}
		if fs := v.filesystem(); fs != nil {
			volume.FileSystem = fs.kind
			volume.Total, volume.Free = fs.space()
		}
		state.Volumes = append(state.Volumes, volume)
	}
	return state
}
