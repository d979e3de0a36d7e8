// Package groupstest tests versions of a group by what travels: bytes in, the
// host's call, bytes out.
package groupstest

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
)

// Machine is a host that records its calls, as the name of package api's method and
// its arguments, and returns the answers in its fields. Err is returned by all.
type Machine struct {
	Err        error
	Yes        bool // PathExists, IsLink, Online
	DiskList   []api.Disk
	Size       int64
	VolumeIDs  []string
	FileSystem string
	Stats      api.VolumeStats
	DiskNumber uint32
	VolumeID   string
	IQNs       []string
	PortalList []api.Portal
	ISCSIDisks []uint32
	Serial     string
	Service    api.Service

	mu    sync.Mutex
	calls []string
}

// VolumeID is one of a volume of the machine that Answering gives.
const VolumeID = `\\?\Volume{0d7a1c52-6a4e-4b93-9d0f-3a2b1c4d5e6f}\`

// Answering is a machine with an answer to everything; none is a zero value.
func Answering() *Machine {
	return &Machine{
		Yes: true,
		DiskList: []api.Disk{{
			Number:       7,
			Location:     &api.DiskLocation{Adapter: "1", Bus: "2", Target: "3", LUN: "4"},
			Page83:       "600508e0",
			SerialNumber: "vol0123",
			Identifiers: []api.DiskIdentifier{
				{CodeSet: 1, Type: 3, Value: "600508e0"}, {CodeSet: 2, Type: 8, Association: 1, Value: "a port"},
			},
		}},
		Size:       64 << 30,
		VolumeIDs:  []string{VolumeID, `\\?\Volume{1}\`},
		FileSystem: "NTFS",
		Stats:      api.VolumeStats{Total: 5 << 30, Used: 300},
		DiskNumber: 4294967295,
		VolumeID:   VolumeID,
		IQNs:       []string{"iqn.a", "iqn.b"},
		PortalList: []api.Portal{{Address: "10.0.0.1", Port: 3261}, {Address: "10.0.0.2", Port: 3260}},
		ISCSIDisks: []uint32{7, 4294967295},
		Serial:     "ec2-1",
		Service:    api.Service{DisplayName: "Initiator", StartType: 3, Status: 4},
	}
}

// Host is the machine as package api sees it.
func (m *Machine) Host() api.Host {
	return api.Host{
		Filesystem: files{m}, Disks: disks{m}, Volumes: volumes{m},
		SMB: shares{m}, ISCSI: initiator{m}, System: system{m},
	}
}

// Calls returns the requests since its last call.
func (m *Machine) Calls() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls := m.calls
	m.calls = nil
	return calls
}

func (m *Machine) note(format string, args ...any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, fmt.Sprintf(format, args...))
	return m.Err
}

type files struct{ *Machine }

func (m files) PathExists(_ context.Context, path string) (bool, error) {
	return m.Yes, m.note("PathExists %s", path)
}
func (m files) Mkdir(_ context.Context, path string) error { return m.note("Mkdir %s", path) }
func (m files) Rmdir(_ context.Context, path string, force bool) error {
	return m.note("Rmdir %s %t", path, force)
}
func (m files) RmdirContents(_ context.Context, path string) error {
	return m.note("RmdirContents %s", path)
}
func (m files) Link(_ context.Context, source, link string) error {
	return m.note("Link source %s link %s", source, link)
}
func (m files) IsLink(_ context.Context, path string) (bool, error) {
	return m.Yes, m.note("IsLink %s", path)
}

type disks struct{ *Machine }

func (m disks) List(context.Context) ([]api.Disk, error) { return m.DiskList, m.note("List") }
func (m disks) Rescan(context.Context) error             { return m.note("Rescan") }
func (m disks) Partition(_ context.Context, disk uint32, expected api.Identity) (string, error) {
	return m.VolumeID, m.note("Partition %d%s", disk, identity(expected))
}
func (m disks) Size(_ context.Context, disk uint32) (int64, error) {
	return m.Machine.Size, m.note("Size %d", disk)
}
func (m disks) Online(_ context.Context, disk uint32) (bool, error) {
	return m.Yes, m.note("Online %d", disk)
}
func (m disks) SetOnline(_ context.Context, disk uint32, expected api.Identity, online bool) error {
	return m.note("SetOnline %d%s %t", disk, identity(expected), online)
}

// identity is nothing for any disk.
func identity(expected api.Identity) string {
	if expected == (api.Identity{}) {
		return ""
	}
	return fmt.Sprintf(" %+v", expected)
}

type volumes struct{ *Machine }

func (m volumes) OnDisk(_ context.Context, disk, partition uint32) ([]string, error) {
	return m.VolumeIDs, m.note("OnDisk %d partition %d", disk, partition)
}
func (m volumes) FileSystem(_ context.Context, id string) (string, error) {
	return m.Machine.FileSystem, m.note("FileSystem %s", id)
}
func (m volumes) Format(_ context.Context, id, fileSystem string) error {
	return m.note("Format %s %q", id, fileSystem)
}
func (m volumes) Mount(_ context.Context, id, path string) error {
	return m.note("Mount %s at %s", id, path)
}
func (m volumes) Unmount(_ context.Context, id, path string) error {
	return m.note("Unmount %s at %s", id, path)
}
func (m volumes) Resize(_ context.Context, id string, size int64) (int64, error) {
	return size, m.note("Resize %s %d", id, size)
}
func (m volumes) Stats(_ context.Context, id string) (api.VolumeStats, error) {
	return m.Machine.Stats, m.note("Stats %s", id)
}
func (m volumes) DiskOf(_ context.Context, id string) (uint32, error) {
	return m.DiskNumber, m.note("DiskOf %s", id)
}
func (m volumes) At(_ context.Context, path string) (string, error) {
	return m.VolumeID, m.note("At %s", path)
}
func (m volumes) Closest(_ context.Context, path string) (string, error) {
	return m.VolumeID, m.note("Closest %s", path)
}
func (m volumes) Flush(_ context.Context, id string) error { return m.note("Flush %s", id) }

type shares struct{ *Machine }

func (m shares) Mount(_ context.Context, mount api.SMBMount) error {
	return m.note("Mount %s at %s as %s with %s", mount.Remote, mount.Local, mount.Username, mount.Password.Reveal())
}
func (m shares) Unmount(_ context.Context, remote, local string) error {
	return m.note("Unmount %s at %q", remote, local)
}

type initiator struct{ *Machine }

func (m initiator) AddPortal(_ context.Context, portal api.Portal) error {
	return m.note("AddPortal %v", portal)
}
func (m initiator) Discover(_ context.Context, portal api.Portal) ([]string, error) {
	return m.IQNs, m.note("Discover %v", portal)
}
func (m initiator) RemovePortal(_ context.Context, portal api.Portal) error {
	return m.note("RemovePortal %v", portal)
}
func (m initiator) Portals(context.Context) ([]api.Portal, error) {
	return m.PortalList, m.note("Portals")
}
func (m initiator) Connect(_ context.Context, login api.ISCSILogin) error {
	return m.note("Connect %v %s auth %d as %s with %s", login.Portal, login.IQN, login.Auth, login.Username,
		login.Secret.Reveal())
}
func (m initiator) Disconnect(_ context.Context, portal api.Portal, iqn string) error {
	return m.note("Disconnect %v %s", portal, iqn)
}
func (m initiator) Disks(_ context.Context, portal api.Portal, iqn string) ([]uint32, error) {
	return m.ISCSIDisks, m.note("Disks %v %s", portal, iqn)
}
func (m initiator) SetMutualSecret(_ context.Context, secret api.Secret) error {
	return m.note("SetMutualSecret %s", secret.Reveal())
}

type system struct{ *Machine }

func (m system) BIOSSerialNumber(context.Context) (string, error) {
	return m.Serial, m.note("BIOSSerialNumber")
}
func (m system) StartService(_ context.Context, name string) error {
	return m.note("StartService %s", name)
}
func (m system) StopService(_ context.Context, name string, force bool) error {
	return m.note("StopService %s %t", name, force)
}
func (m system) Service(_ context.Context, name string) (api.Service, error) {
	return m.Machine.Service, m.note("Service %s", name)
}
