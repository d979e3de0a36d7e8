package windows

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
)

// DiskSpec is a disk that is attached to the machine.
type DiskSpec struct {
	// Serial is the device's serial number, with its padding; "" for none.
	Serial string
	// Page83 is the identifier of the device in VPD page 0x83: hexadecimal digits
	// become a binary one, any other text a text; "" for none. IDs replaces it.
	Page83 string
	IDs    win32.DeviceIDs
	// Size is in bytes, SectorSize as well: 0 is 512.
	Size       int64
	SectorSize uint32
	// Bus is win32.Bus…; 0 is NVMe.
	Bus uint32
	// Location is nil for a device without a SCSI address. AddressNeedsRead is for
	// drivers that return it only on a handle with read access.
	Location         *win32.SCSIAddress
	AddressNeedsRead bool
	// Offline and ReadOnly add to the effect of the SAN policy.
	Offline, ReadOnly bool
	// Style is "" for a raw disk, "mbr", "gpt" for an empty GPT, or "data" for a GPT
	// with the reserved and one basic data partition.
	Style string
	// FileSystem is the filesystem of that data partition, or of an MBR's; "" for
	// nothing. DataSize is the partition's size, 0 for all space.
	FileSystem string
	DataSize   int64
	// DriveLetter lets Windows give the data partition a letter.
	DriveLetter bool
	// Noise fills the disk with data; Bytes are data at offsets.
	Noise bool
	Bytes map[int64][]byte
	// ArrivesAfter is how long Windows takes to see the disk; NeedsRescan, that it
	// does not see it by itself.
	ArrivesAfter time.Duration
	NeedsRescan  bool
	// Spanned are further extents of the disk's volumes, as those of a dynamic disk.
	Spanned win32.VolumeDiskExtents
	// Broken is the error that each opening of the disk gives.
	Broken win32.Errno
}

// disk is a disk, and what Windows knows of it. It is guarded by the machine's
// lock.
type disk struct {
	spec   DiskSpec
	data   content
	size   int64 // of the device
	sector int64

	// How it is attached.
	present bool
	waiting bool // for a rescan
	arrives time.Time
	number  uint32
	last    int64  // the number before, or -1
	path    string // of the device interface
	arrival int    // of all arrivals of disks; handles of an earlier one are void
	session *session

	// What Windows knows of it.
	known      int64  // its size
	sized      int64  // its size at the last IOCTL_DISK_UPDATE_DRIVE_SIZE
	lag        int    // updates that the GPT's end still needs
	attributes uint64 // win32.DiskAttribute…
	persistent uint64 // the same, over restarts
	system     bool

	// The partition table, and the filesystems by their offsets: a new table over
	// old data shows the old data again.
	table       table
	filesystems map[int64]*filesystem
}

// AddDisk attaches a disk and returns its number. That of a disk that Windows
// does not see yet is only expected: look it up again. A spec that cannot be is
// an error.
func (m *Machine) AddDisk(spec DiskSpec) (uint32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	d, err := newDisk(spec)
	if err != nil {
		return 0, err
	}
	m.attach(d, 0)
	return d.number, nil
}

// MustAddDisk is AddDisk for specs that a test wrote down; it panics.
func (m *Machine) MustAddDisk(spec DiskSpec) uint32 {
	number, err := m.AddDisk(spec)
	if err != nil {
		panic(err)
	}
	return number
}

func newDisk(spec DiskSpec) (*disk, error) {
	if spec.SectorSize == 0 {
		spec.SectorSize = 512
	}
	if spec.Bus == 0 {
		spec.Bus = win32.BusNVMe
	}
	if spec.SectorSize < 512 || spec.SectorSize > pageSize || spec.SectorSize&(spec.SectorSize-1) != 0 {
		return nil, fmt.Errorf("simulated: a sector of %d bytes", spec.SectorSize)
	}
	if spec.Size <= 0 || spec.Size%int64(spec.SectorSize) != 0 {
		return nil, fmt.Errorf("simulated: a disk of %d bytes", spec.Size)
	}
	d := &disk{
		spec: spec, size: spec.Size, known: spec.Size, sector: int64(spec.SectorSize), last: -1,
		table: table{style: win32.StyleRaw}, filesystems: map[int64]*filesystem{},
	}
	d.data.noise = spec.Noise
	if err := d.prepare(); err != nil {
		return nil, err
	}
	for offset, bytes := range spec.Bytes {
		if offset < 0 || offset+int64(len(bytes)) > d.size {
			return nil, fmt.Errorf("simulated: bytes at %d of a disk of %d", offset, d.size)
		}
		d.data.write(bytes, offset)
	}
	return d, nil
}

// attach plugs the disk in; Windows sees it after a delay.
func (m *Machine) attach(d *disk, delay time.Duration) {
	d.waiting = d.spec.NeedsRescan
	d.arrives = time.Now().Add(d.spec.ArrivesAfter + delay)
	d.number = m.freeNumber(d)
	m.disks = append(m.disks, d)
	m.advance()
}

// freeNumber is the lowest number that no disk has, that this one did not have
// before, and that NumberGap does not leave free: disk numbers are not stable over re-attachment.
func (m *Machine) freeNumber(d *disk) uint32 {
	for number := uint32(0); ; number += 1 + m.options.NumberGap {
		taken := slices.ContainsFunc(m.disks, func(o *disk) bool { return o != d && o.number == number })
		if !taken && int64(number) != d.last {
			return number
		}
	}
}

// advance completes the changes that are due: disks arrive, services reach their states.
func (m *Machine) advance() {
	now := time.Now()
	for _, d := range m.disks {
		if !d.present && !d.waiting && !now.Before(d.arrives) {
			m.arrive(d)
		}
	}
	m.advanceServices(now)
}

// arrive makes Windows see the disk.
func (m *Machine) arrive(d *disk) {
	m.arrivals++
	d.present, d.known, d.arrival = true, d.size, m.arrivals
	if d.path == "" { // an instance path comes from the device's location, and survives re-attachments
		d.path = fmt.Sprintf(`\\?\scsi#disk&ven_simulated&prod_disk#5&%08x&0&%06x#%s`,
			sha(d.spec.Serial+d.spec.Page83), m.arrivals, win32.InterfaceDisk)
	}
	d.attributes = d.persistent | m.policy(d)
	if d.attributes&win32.DiskAttributeOffline == 0 && m.collides(d) {
		d.attributes |= win32.DiskAttributeOffline
	}
	if d.attributes&win32.DiskAttributeOffline == 0 {
		m.bringOnline(d)
	}
}

func sha(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:4]
}

func (m *Machine) policy(d *disk) (attributes uint64) {
	if d.last >= 0 { // known to the machine: it keeps its persistent attributes
		return 0
	}
	shared := slices.Contains([]uint32{win32.BusSCSI, win32.BusISCSI, win32.BusSAS}, d.spec.Bus)
	if !d.system && (m.options.SANPolicy == OfflineAll || m.options.SANPolicy == OfflineShared && shared) {
		attributes = win32.DiskAttributeOffline | win32.DiskAttributeReadOnly
	}
	if d.spec.Offline {
		attributes |= win32.DiskAttributeOffline
	}
	if d.spec.ReadOnly {
		attributes |= win32.DiskAttributeReadOnly
	}
	d.persistent = attributes
	return attributes
}

// collides reports whether another disk with this one's identity is online: the
// later of two clones stays offline.
func (m *Machine) collides(d *disk) bool {
	return d.table.style != win32.StyleRaw && slices.ContainsFunc(m.disks, func(o *disk) bool {
		return o != d && o.present && o.online() && o.table.style == d.table.style &&
			o.table.id == d.table.id && o.table.signature == d.table.signature
	})
}

func (d *disk) geometry() win32.Geometry {
	return win32.Geometry{
		MediaType: 12, TracksPerCylinder: 255, SectorsPerTrack: 63, BytesPerSector: d.spec.SectorSize,
		Cylinders: d.known / d.sector / 255 / 63, DiskSize: d.known,
	}
}

func (d *disk) online() bool   { return d.attributes&win32.DiskAttributeOffline == 0 }
func (d *disk) readOnly() bool { return d.attributes&win32.DiskAttributeReadOnly != 0 }

// writable is what Windows answers to a change of the disk.
func (d *disk) writable() error {
	switch {
	case !d.online():
		return win32.ErrorNotReady
	case d.readOnly():
		return win32.ErrorWriteProtect
	}
	return nil
}

func (d *disk) targets() []string {
	return []string{fmt.Sprintf("disk %d", d.number), d.spec.Serial}
}

// ids are the identifiers of VPD page 0x83.
func (d *disk) ids() win32.DeviceIDs {
	if d.spec.IDs != nil || d.spec.Page83 == "" {
		return d.spec.IDs
	}
	id := win32.DeviceID{CodeSet: win32.CodeSetASCII, Type: 8, Identifier: []byte(d.spec.Page83)}
	if digits, err := hex.DecodeString(strings.TrimPrefix(d.spec.Page83, "0x")); err == nil {
		id = win32.DeviceID{CodeSet: win32.CodeSetBinary, Type: 3, Identifier: digits}
	}
	return win32.DeviceIDs{id}
}

func (m *Machine) disk(number uint32) *disk {
	for _, d := range m.disks {
		if d.present && d.number == number {
			return d
		}
	}
	return nil
}

// CloneDisk attaches a copy of a disk with another serial number, as a volume made
// from a snapshot of it. Two disks with one identity cannot be online together:
// the copy stays offline, and gets a new identity when it is brought online.
func (m *Machine) CloneDisk(number uint32, serial string) (uint32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	d := m.disk(number)
	if d == nil || d.system {
		return 0, fmt.Errorf("simulated: disk %d cannot be copied", number)
	}
	spec := d.spec
	spec.Serial, spec.Page83, spec.IDs, spec.Size = serial, "", nil, d.size
	clone := &disk{
		spec: spec, size: d.size, known: d.size, sector: d.sector, last: -1, table: d.table, filesystems: map[int64]*filesystem{},
		data: content{noise: d.data.noise, pages: map[int64][]byte{}},
	}
	for number, page := range d.data.pages {
		clone.data.pages[number] = slices.Clone(page)
	}
	clone.table.partitions = nil
	for _, p := range d.table.partitions {
		clone.table.partitions = append(clone.table.partitions, &partition{Partition: p.Partition})
	}
	for offset, fs := range d.filesystems {
		clone.filesystems[offset] = m.cloneFilesystem(fs)
	}
	m.attach(clone, 0)
	return clone.number, nil
}

// RemoveDisk pulls the disk out, even if files on it are open.
func (m *Machine) RemoveDisk(number uint32) error {
	_, err := m.detach(number)
	return err
}

// MoveDisk pulls a disk out and plugs it in again; it gets another number.
func (m *Machine) MoveDisk(number uint32) (uint32, error) {
	d, err := m.detach(number)
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.attach(d, 0)
	return d.number, nil
}

func (m *Machine) detach(number uint32) (*disk, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	d := m.disk(number)
	if d == nil || d.system {
		return nil, fmt.Errorf("simulated: disk %d cannot be removed", number)
	}
	m.pull(d)
	return d, nil
}

// pull takes the disk away from Windows.
func (m *Machine) pull(d *disk) {
	m.takeOffline(d)
	d.present, d.last = false, int64(d.number)
	m.disks = slices.DeleteFunc(m.disks, func(o *disk) bool { return o == d })
}

// GrowDisk makes the device larger. Windows learns it by
// IOCTL_DISK_UPDATE_PROPERTIES, and its GPT by IOCTL_DISK_UPDATE_DRIVE_SIZE.
func (m *Machine) GrowDisk(number uint32, size int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance()
	d := m.disk(number)
	if d == nil || size < d.size || size%d.sector != 0 {
		return fmt.Errorf("simulated: disk %d cannot be grown to %d bytes", number, size)
	}
	d.size = size
	return nil
}
