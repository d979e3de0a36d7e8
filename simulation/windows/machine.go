package windows

import (
	"errors"
	"sync"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// ErrDied is what every call answers whose process has died: by a fault, or by
// EndProcesses. The calls that a new Calls gives are those of a new process.
var ErrDied = errors.New("simulated: the process has died")

// SANPolicy decides the state of disks that are new to the machine (diskpart's
// "san" command).
type SANPolicy int

// The policies.
const (
	// OfflineShared leaves disks on shared buses (SCSI, iSCSI, SAS) offline and
	// read-only: the policy of Windows Server.
	OfflineShared SANPolicy = iota
	OnlineAll
	OfflineAll
)

// Options are the machine's own traits. The zero value is a Windows Server with
// one disk, which has C:.
type Options struct {
	SANPolicy SANPolicy
	// VolumeDelay is how long a partition's volume takes to arrive.
	VolumeDelay time.Duration
	// DeviceDelay is how long the disks of an iSCSI session take to arrive.
	DeviceDelay time.Duration
	// UsableLag is how many more IOCTL_DISK_UPDATE_PROPERTIES a grown disk needs
	// after IOCTL_DISK_UPDATE_DRIVE_SIZE until its GPT may use the new space.
	UsableLag int
	// ListDelay is how long WMI takes to list a volume that has arrived: until then
	// it cannot be formatted. FormatDelay is how long Windows takes to recognise the
	// filesystem that a format has made.
	ListDelay, FormatDelay time.Duration
	// SessionBusy is how long a new iSCSI session answers that it, or a device on
	// it, is busy.
	SessionBusy time.Duration
	// DeletePending keeps the name of an entry that is removed while it is open with
	// FILE_SHARE_DELETE until its last handle is closed, as filesystems do that know
	// no FILE_DISPOSITION_POSIX_SEMANTICS.
	DeletePending bool
	// NoShortNames disables names such as PROGRA~1, which exist on C: only.
	NoShortNames bool
	// NumberGap is how many numbers of disks stay free between two disks: numbers are
	// not dense where disks come and go.
	NumberGap uint32
	// BIOSSerial is the serial number in the SMBIOS table.
	BIOSSerial string
	// SystemDiskSize is in bytes; 0 for 64 GiB.
	SystemDiskSize int64
}

// Machine is a Windows machine in memory. All its methods may be called at once,
// also from hooks.
type Machine struct {
	options Options

	mu       sync.Mutex
	calls    calls
	clients  map[*client]struct{}
	disks    []*disk // present or not yet; removed ones are gone
	arrivals int     // how many disks have arrived, ever
	mounted  map[*node]struct{}
	nodes    uint64 // the last node's number
	files    map[*OpenFile]struct{}
	losses   []string

	shares   []*share
	mappings []*mapping
	iscsi    initiator
	services []*service
}

// New makes a machine that has just been installed: C: holds Windows, Users,
// Program Files and var.
func New(options Options) *Machine {
	m := &Machine{
		options: options,
		clients: map[*client]struct{}{},
		mounted: map[*node]struct{}{},
		files:   map[*OpenFile]struct{}{},
	}
	m.addSystemDisk()
	m.services = []*service{{state: serviceStopped, ServiceSpec: ServiceSpec{
		Name: iscsiService, DisplayName: "Microsoft iSCSI Initiator Service", StartType: startManual,
	}}}
	return m
}

// Calls returns the machine's calls for one process. Its handles are its own: when
// it dies they are closed.
func (m *Machine) Calls() win32.Machine {
	c := &client{m: m, handles: map[handle]struct{}{}, died: make(chan struct{})}
	m.mu.Lock()
	m.clients[c] = struct{}{}
	m.mu.Unlock()
	return win32.Machine{
		Files:    fileCalls{c},
		Devices:  deviceCalls{c},
		Volumes:  volumeCalls{c},
		SMB:      smbCalls{c},
		ISCSI:    iscsiCalls{c},
		Services: serviceCalls{c},
		Firmware: firmwareCalls{c},
	}
}

// SetOptions changes the machine's traits from now on.
func (m *Machine) SetOptions(change func(*Options)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.options)
}

// EndProcesses ends all processes that use Calls, as at a crash.
func (m *Machine) EndProcesses() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.clients {
		c.die()
	}
}

// OpenHandles is how many handles of living processes are open.
func (m *Machine) OpenHandles() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for c := range m.clients {
		n += len(c.handles)
	}
	return n
}

// Losses lists, in order, the data that calls destroyed: partition tables and
// filesystems that were overwritten, space with data that was formatted, volumes
// that went away unflushed.
func (m *Machine) Losses() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.losses...)
}

// client is a process with handles. It is guarded by the machine's lock.
type client struct {
	m       *Machine
	dead    bool
	died    chan struct{}
	handles map[handle]struct{}
}

// handle is an open object of a process.
type handle interface{ release() }

// die closes the process's handles, as Windows does.
func (c *client) die() {
	if c.dead {
		return
	}
	c.dead = true
	close(c.died)
	for h := range c.handles {
		h.release()
	}
	c.handles = nil
	delete(c.m.clients, c)
}

// opened makes the handle one of the process.
func (c *client) opened(h handle) { c.handles[h] = struct{}{} }

// closed closes a handle; ERROR_INVALID_HANDLE when it is closed already.
func (c *client) closed(h handle) error {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if c.dead {
		return ErrDied
	}
	if _, open := c.handles[h]; !open {
		return win32.ErrorInvalidHandle
	}
	delete(c.handles, h)
	h.release()
	return nil
}
