package windows_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

const gibi = 1 << 30

func machine(t *testing.T, options windows.Options) (*windows.Machine, win32.Machine) {
	t.Helper()
	m := windows.New(options)
	t.Cleanup(func() {
		if err := m.Check(); err != nil {
			t.Errorf("the machine contradicts itself: %v", err)
		}
	})
	return m, m.Calls()
}

// must stops the test at an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused checks an error's number.
func refused(t *testing.T, what string, err error, want win32.Errno) {
	t.Helper()
	var got win32.Errno
	if !errors.As(err, &got) || got != want {
		t.Errorf("%s gives %v, not %v", what, err, want)
	}
}

// Access: CTL_CODE names the access that a code needs in its bits 14 and 15, and
// the I/O manager answers ERROR_ACCESS_DENIED; queries work on a handle without
// any right.
func TestControl_asksForTheAccessThatTheCodeNames(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	number := m.MustAddDisk(windows.DiskSpec{Serial: "a", Size: gibi, Style: "data", FileSystem: "NTFS", Location: &win32.SCSIAddress{LUN: 3}})
	for _, c := range []struct {
		code  win32.ControlCode
		least win32.Access
	}{
		{win32.IoctlStorageGetDeviceNumber, win32.Query},
		{win32.IoctlSCSIGetAddress, win32.Query},
		{win32.IoctlDiskGetDriveGeometryEx, win32.Query},
		{win32.IoctlDiskGetDriveLayoutEx, win32.Query},
		{win32.IoctlDiskGetDiskAttributes, win32.Query},
		{win32.IoctlDiskGetLengthInfo, win32.Read},
		{win32.IoctlDiskUpdateProperties, win32.Query},
		{win32.IoctlDiskSetDiskAttributes, win32.ReadWrite},
		{win32.IoctlDiskCreateDisk, win32.ReadWrite},
		{win32.IoctlDiskSetDriveLayoutEx, win32.ReadWrite},
		{win32.IoctlDiskGrowPartition, win32.ReadWrite},
	} {
		for access := win32.Query; access <= win32.ReadWrite; access++ {
			d, err := calls.Devices.OpenDisk(number, access)
			must(t, err)
			_, err = d.Control(c.code, nil, make([]byte, 4096))
			if denied := errors.Is(err, win32.ErrorAccessDenied); denied != (access < c.least) {
				t.Errorf("%v with access %d gives %v", c.code, access, err)
			}
			must(t, d.Close())
		}
	}
}

// STORAGE_DEVICE_DESCRIPTOR: the serial number comes with the blanks that pad it,
// Size is the whole descriptor's even when there is room for its head only.
func TestQueryProperty_givesAsMuchAsThereIsRoomFor(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	number := m.MustAddDisk(windows.DiskSpec{Serial: "vol01  ", Page83: "6001405abcdef", Size: gibi})
	d, err := calls.Devices.OpenDisk(number, win32.Query)
	must(t, err)
	defer d.Close()
	query := win32.PropertyQuery{Property: win32.PropertyDevice}.Encode()
	head := make([]byte, 8)
	n, err := d.Control(win32.IoctlStorageQueryProperty, query, head)
	must(t, err)
	size, err := win32.DescriptorSize(head[:n])
	must(t, err)
	descriptor, err := win32.DecodeDeviceDescriptor(control(t, d, win32.IoctlStorageQueryProperty, query))
	if err != nil || descriptor.Serial != "vol01  " || descriptor.BusType != win32.BusNVMe || size < 40 {
		t.Errorf("descriptor %+v of %d bytes, %v", descriptor, size, err)
	}
	// 13 digits are not bytes: the identifier is a text.
	ids, err := win32.DecodeDeviceIDs(control(t, d, win32.IoctlStorageQueryProperty,
		win32.PropertyQuery{Property: win32.PropertyDeviceID}.Encode()))
	if err != nil || len(ids) != 1 || ids[0].CodeSet != win32.CodeSetASCII {
		t.Errorf("identifiers %+v, %v", ids, err)
	}
	_, err = d.Control(win32.IoctlStorageQueryProperty, query[:4], head)
	refused(t, "half a query", err, win32.ErrorBadLength)
	_, err = d.Control(win32.IoctlSCSIGetAddress, nil, head)
	refused(t, "the address of a device without one", err, win32.ErrorInvalidFunction)
	_, err = d.Control(0x70FF0, nil, head)
	refused(t, "an unknown code", err, win32.ErrorInvalidFunction)
}

// The SAN policy of Windows Server keeps new disks on shared buses offline and
// read-only; IOCTL_DISK_SET_DISK_ATTRIBUTES clears both bits, over restarts only
// with Persist.
func TestNewDisks_onSharedBusesAreOfflineAndReadOnly(t *testing.T) {
	for _, c := range []struct {
		bus    uint32
		policy windows.SANPolicy
		want   uint64
	}{
		{win32.BusNVMe, windows.OfflineShared, 0},
		{win32.BusSAS, windows.OfflineShared, 3},
		{win32.BusISCSI, windows.OfflineShared, 3},
		{win32.BusSAS, windows.OnlineAll, 0},
		{win32.BusNVMe, windows.OfflineAll, 3},
	} {
		m, calls := machine(t, windows.Options{SANPolicy: c.policy})
		d := openDisk(t, calls, m.MustAddDisk(windows.DiskSpec{Serial: "a", Size: gibi, Bus: c.bus}))
		got, err := win32.DecodeGetDiskAttributes(control(t, d, win32.IoctlDiskGetDiskAttributes, nil))
		if err != nil || got.Attributes != c.want {
			t.Errorf("bus %d, policy %d: attributes %d, %v", c.bus, c.policy, got.Attributes, err)
		}
	}
}

func TestSetAttributes_hold_overRestartsOnlyWhenTheyPersist(t *testing.T) {
	for _, persist := range []bool{false, true} {
		m, calls := machine(t, windows.Options{})
		number := m.MustAddDisk(windows.DiskSpec{Serial: "a", Size: gibi, Bus: win32.BusSAS})
		control(t, openDisk(t, calls, number), win32.IoctlDiskSetDiskAttributes, win32.SetDiskAttributes{Persist: persist, Mask: 3}.Encode())
		m.Reboot()
		for _, d := range m.State().Disks {
			if d.Serial == "a" && d.Online != persist {
				t.Errorf("persist %v: online %v after the restart", persist, d.Online)
			}
		}
	}
}

// A change of a disk that is offline or read-only is refused, and so is what the
// structures cannot say.
func TestDiskChanges_thatWindowsRefuses(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	number := m.MustAddDisk(windows.DiskSpec{Serial: "a", Size: gibi, Offline: true})
	d := openDisk(t, calls, number)
	try := func(what string, code win32.ControlCode, in []byte, want win32.Errno) {
		t.Helper()
		_, err := d.Control(code, in, nil)
		refused(t, what, err, want)
	}
	create := win32.CreateDisk{Style: win32.StyleGPT, DiskID: win32.NewGUID(), MaxPartitions: 128}.Encode()
	try("a table on an offline disk", win32.IoctlDiskCreateDisk, create, win32.ErrorNotReady)
	control(t, d, win32.IoctlDiskSetDiskAttributes, win32.SetDiskAttributes{Mask: 3, Attributes: 2}.Encode())
	try("a table on a read-only disk", win32.IoctlDiskCreateDisk, create, win32.ErrorWriteProtect)
	try("half a structure", win32.IoctlDiskSetDiskAttributes, make([]byte, 39), win32.ErrorBadLength)
	try("another version", win32.IoctlDiskSetDiskAttributes, make([]byte, 40), win32.ErrorInvalidParameter)
	try("an unknown attribute", win32.IoctlDiskSetDiskAttributes, win32.SetDiskAttributes{Mask: 4}.Encode(), win32.ErrorInvalidParameter)
	control(t, d, win32.IoctlDiskSetDiskAttributes, win32.SetDiskAttributes{Mask: 3}.Encode())
	layout := win32.DriveLayout{Style: win32.StyleGPT}
	try("partitions without a table", win32.IoctlDiskSetDriveLayoutEx, layout.Encode(), win32.ErrorInvalidParameter)
	control(t, d, win32.IoctlDiskCreateDisk, create)
	layout = layoutOf(t, d)
	if layout.UsableOffset != 34*512 || layout.UsableLength != gibi-(34+33)*512 || layout.MaxPartitions != 128 {
		t.Errorf("usable are %d bytes from %d", layout.UsableLength, layout.UsableOffset)
	}
	data := win32.Partition{
		Style: win32.StyleGPT, Offset: 1 << 20, Length: 64 << 20, Rewrite: true, Type: win32.PartitionBasicData, ID: win32.NewGUID(),
	}
	for what, change := range map[string]func(p *win32.Partition){
		"a partition before the usable space": func(p *win32.Partition) { p.Offset = 512 },
		"a partition beyond the disk":         func(p *win32.Partition) { p.Length = 2 * gibi },
		"a partition of nothing":              func(p *win32.Partition) { p.Length = 0 },
		"a partition off a sector":            func(p *win32.Partition) { p.Offset++ },
		"an entry of an MBR":                  func(p *win32.Partition) { p.Style, p.MBRType = win32.StyleMBR, 7 },
		"a negative length":                   func(p *win32.Partition) { p.Length = -512 },
	} {
		bad := data
		change(&bad)
		layout.Partitions = []win32.Partition{bad}
		try(what, win32.IoctlDiskSetDriveLayoutEx, layout.Encode(), win32.ErrorInvalidParameter)
	}
	other := data
	other.ID, other.Offset = win32.NewGUID(), 32<<20
	layout.Partitions = []win32.Partition{data, other}
	try("partitions that overlap", win32.IoctlDiskSetDriveLayoutEx, layout.Encode(), win32.ErrorInvalidParameter)
	try("a truncated table", win32.IoctlDiskSetDriveLayoutEx, layout.Encode()[:100], win32.ErrorBadLength)
	// RewritePartition = 0: the entry is not written, and the call succeeds.
	data.Rewrite = false
	layout.Partitions = []win32.Partition{data}
	control(t, d, win32.IoctlDiskSetDriveLayoutEx, layout.Encode())
	if got := layoutOf(t, d); len(got.Partitions) != 0 {
		t.Errorf("an entry that was not to be written is there: %+v", got.Partitions)
	}
}

// After the disk grew, LENGTH_INFO stays until IOCTL_DISK_UPDATE_PROPERTIES, and
// UsableLength until IOCTL_DISK_UPDATE_DRIVE_SIZE, with a lag until a further
// update; an enumeration of the bus is not enough.
func TestGrownDisk_isKnownAfterItsUpdates(t *testing.T) {
	for _, lag := range []int{0, 1} {
		m, calls := machine(t, windows.Options{UsableLag: lag})
		number := m.MustAddDisk(windows.DiskSpec{Serial: "a", Size: gibi, Style: "data", FileSystem: "NTFS"})
		d := openDisk(t, calls, number)
		must(t, m.GrowDisk(number, 2*gibi))
		must(t, calls.Devices.Reenumerate())
		lengths := func() (int64, int64) {
			length, err := win32.DecodeLengthInfo(control(t, d, win32.IoctlDiskGetLengthInfo, nil))
			must(t, err)
			return length.Length, layoutOf(t, d).UsableLength
		}
		_, before := lengths()
		for i := range lag + 2 {
			if length, usable := lengths(); (length != gibi) != (i > 0) || usable != before {
				t.Errorf("lag %d, after %d updates: length %d, usable %d", lag, i, length, usable)
			}
			if i == 1 {
				geometry := control(t, d, win32.IoctlDiskUpdateDriveSize, nil)
				if len(geometry) != win32.DiskGeometrySize {
					t.Errorf("a geometry of %d bytes", len(geometry))
				}
				continue
			}
			control(t, d, win32.IoctlDiskUpdateProperties, nil)
		}
		if length, usable := lengths(); length != 2*gibi || usable != before+gibi {
			t.Errorf("lag %d: length %d, usable %d in the end", lag, length, usable)
		}
	}
}

// IOCTL_DISK_GROW_PARTITION takes no more than the free space behind the partition;
// the filesystem follows by FSCTL_EXTEND_VOLUME only, in sectors of the volume, and
// NTFS keeps the last one for itself.
func TestGrowth_goesInTwoSteps(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	number := m.MustAddDisk(windows.DiskSpec{Serial: "a", Size: 2 * gibi, Style: "data", FileSystem: "NTFS", DataSize: gibi})
	d := openDisk(t, calls, number)
	layout := layoutOf(t, d)
	data := layout.Partitions[1]
	free := layout.UsableOffset + layout.UsableLength - data.Offset - data.Length
	grow := func(number uint32, by int64) error {
		_, err := d.Control(win32.IoctlDiskGrowPartition, win32.GrowPartition{Number: number, Bytes: by}.Encode(), nil)
		return err
	}
	refused(t, "growing beyond the disk", grow(2, free+512), win32.ErrorInvalidParameter)
	refused(t, "growing by half a sector", grow(2, 256), win32.ErrorInvalidParameter)
	refused(t, "growing a partition that is none", grow(3, 512), win32.ErrorInvalidParameter)
	refused(t, "growing into the next one", grow(1, 512), win32.ErrorInvalidParameter)
	must(t, grow(2, 512<<20))
	names, err := calls.Volumes.All()
	must(t, err)
	v, err := calls.Volumes.Open(names[1], win32.ReadWrite)
	must(t, err)
	defer v.Close()
	sizes := func() (int64, int64) {
		ntfs, err := win32.DecodeNTFSVolumeData(control(t, v, win32.FsctlGetNTFSVolumeData, nil))
		must(t, err)
		extents, err := win32.DecodeVolumeDiskExtents(control(t, v, win32.IoctlVolumeGetVolumeDiskExtents, nil))
		must(t, err)
		return ntfs.Sectors, extents[0].Length
	}
	if sectors, length := sizes(); sectors != gibi/512-1 || length != gibi+512<<20 {
		t.Errorf("between the steps: %d sectors in %d bytes", sectors, length)
	}
	extend := func(sectors int64) error {
		_, err := v.Control(win32.FsctlExtendVolume, win32.ExtendVolume{Sectors: sectors}.Encode(), nil)
		return err
	}
	refused(t, "extending beyond the partition", extend((gibi+512<<20)/512+1), win32.ErrorInvalidParameter)
	refused(t, "shrinking", extend(gibi/512-8), win32.ErrorInvalidParameter)
	must(t, extend((gibi+512<<20)/512))
	if sectors, _ := sizes(); sectors != (gibi+512<<20)/512-1 {
		t.Errorf("in the end: %d sectors", sectors)
	}
	space, err := calls.Volumes.FreeSpace(names[1])
	must(t, err)
	if space.Total != gibi+512<<20-4096 {
		t.Errorf("total %d", space.Total)
	}
}

// Blank checks read the disk itself: tables, boot sectors and foreign data are
// bytes. Reads are whole sectors.
func TestReadAt_seesWhatIsOnTheDisk(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	blank := func(d win32.Device, offset int64) bool {
		p := make([]byte, 1<<20)
		n, err := d.ReadAt(p, offset)
		must(t, err)
		return n == len(p) && !slices.ContainsFunc(p, func(b byte) bool { return b != 0 })
	}
	for name, c := range map[string]struct {
		spec        windows.DiskSpec
		first, last bool
	}{
		"blank":   {windows.DiskSpec{}, true, true},
		"noise":   {windows.DiskSpec{Noise: true}, false, false},
		"gpt":     {windows.DiskSpec{Style: "gpt"}, false, false},
		"mbr":     {windows.DiskSpec{Style: "mbr"}, false, true},
		"foreign": {windows.DiskSpec{Bytes: map[int64][]byte{1080: {0x53, 0xEF}}}, false, true},
	} {
		c.spec.Size, c.spec.Serial = gibi, name
		d := openDisk(t, calls, m.MustAddDisk(c.spec))
		if first, last := blank(d, 0), blank(d, gibi-1<<20); first != c.first || last != c.last {
			t.Errorf("%s: the first MiB is blank: %v, the last: %v", name, first, last)
		}
		_, err := d.ReadAt(make([]byte, 512), 100)
		refused(t, "reading off a sector", err, win32.ErrorInvalidParameter)
		_, err = d.ReadAt(make([]byte, 100), 0)
		refused(t, "reading half a sector", err, win32.ErrorInvalidParameter)
		_, err = d.ReadAt(make([]byte, 512), gibi)
		refused(t, "reading beyond the end", err, win32.ErrorSectorNotFound)
	}
	q, err := calls.Devices.OpenDisk(1, win32.Query)
	must(t, err)
	defer q.Close()
	_, err = q.ReadAt(make([]byte, 512), 0)
	refused(t, "reading by a handle for queries", err, win32.ErrorAccessDenied)
}

// Disk numbers are not stable: over a restart, and when a disk is pulled out and
// plugged in again. Old handles are of a device that is gone.
func TestDiskNumbers_change(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	a := m.MustAddDisk(windows.DiskSpec{Serial: "a", Size: gibi})
	b := m.MustAddDisk(windows.DiskSpec{Serial: "b", Size: gibi})
	d := openDisk(t, calls, a)
	moved, err := m.MoveDisk(a)
	must(t, err)
	if moved == a || moved == b || moved == 0 {
		t.Errorf("disk %d became %d", a, moved)
	}
	_, err = d.Control(win32.IoctlDiskGetDriveLayoutEx, nil, make([]byte, 4096))
	refused(t, "the old handle", err, 433)
	_, err = calls.Devices.OpenDisk(a, win32.Query)
	refused(t, "the old number", err, win32.ErrorFileNotFound)
	before := numbers(m)
	m.Reboot()
	if after := numbers(m); after["a"] == before["a"] || after["b"] == before["b"] || after["SYSTEM"] != 0 {
		t.Errorf("numbers %v became %v", before, after)
	}
}

func numbers(m *windows.Machine) map[string]uint32 {
	numbers := map[string]uint32{}
	for _, d := range m.State().Disks {
		numbers[d.Serial] = d.Number
	}
	return numbers
}

// Disks and volumes arrive some time after they were plugged in or made, some
// disks after CM_Reenumerate_DevNode only.
func TestArrivals_takeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, calls := machine(t, windows.Options{VolumeDelay: 2 * time.Second})
		number := m.MustAddDisk(windows.DiskSpec{Serial: "a", Size: gibi, ArrivesAfter: time.Second})
		hidden := m.MustAddDisk(windows.DiskSpec{Serial: "b", Size: gibi, NeedsRescan: true})
		_, err := calls.Devices.OpenDisk(number, win32.Query)
		refused(t, "a disk on its way", err, win32.ErrorFileNotFound)
		time.Sleep(time.Second)
		volume := partitioned(t, calls, number)
		_, err = calls.Volumes.Information(volume)
		refused(t, "a volume on its way", err, win32.ErrorFileNotFound)
		time.Sleep(2 * time.Second)
		_, err = calls.Volumes.Information(volume)
		refused(t, "a raw volume", err, win32.ErrorUnrecognizedVolume)
		_, err = calls.Devices.OpenDisk(hidden, win32.Query)
		refused(t, "a disk that Windows has not looked for", err, win32.ErrorFileNotFound)
		must(t, calls.Devices.Reenumerate())
		paths, err := calls.Devices.Interfaces()
		must(t, err)
		if len(paths) != 3 {
			t.Errorf("disks %q", paths)
		}
		_ = openDisk(t, calls, hidden)
	})
}

// Losses reports what a write has overwritten. A partition's content is back when a
// table has the partition again.
func TestLosses_reportsWhatWasOverwritten(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	number := m.MustAddDisk(windows.DiskSpec{Serial: "a", Size: gibi, Style: "data", FileSystem: "NTFS"})
	before := layoutOf(t, openDisk(t, calls, number)).Partitions[1]
	volume := partitioned(t, calls, number)
	if info, err := calls.Volumes.Information(volume); err != nil || info.FileSystem != "NTFS" || before.Offset != 17<<20 {
		t.Errorf("the old filesystem under the new table: %+v, %v", info, err)
	}
	must(t, calls.Volumes.Format(t.Context(), volume, win32.FormatRequest{FileSystem: "NTFS"}))
	if losses := m.Losses(); len(losses) != 2 {
		t.Errorf("losses %q", losses)
	}
}

func TestInterfaces_openTheSameDisks(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	number := m.MustAddDisk(windows.DiskSpec{Serial: "a", Size: gibi})
	must(t, m.RemoveDisk(m.MustAddDisk(windows.DiskSpec{Serial: "gone", Size: gibi})))
	m.MustAddDisk(windows.DiskSpec{Serial: "broken", Size: gibi, Broken: win32.ErrorIODevice})
	paths, err := calls.Devices.Interfaces()
	must(t, err)
	var found []uint32
	for _, path := range paths {
		d, err := calls.Devices.OpenInterface(string(bytes.ToUpper([]byte(path))), win32.Query)
		if errors.Is(err, win32.ErrorIODevice) {
			continue
		}
		must(t, err)
		n, err := win32.DecodeDeviceNumber(control(t, d, win32.IoctlStorageGetDeviceNumber, nil))
		must(t, err)
		found = append(found, n.Number)
		must(t, d.Close())
		refused(t, "closing twice", d.Close(), win32.ErrorInvalidHandle)
	}
	if !slices.Equal(found, []uint32{0, number}) {
		t.Errorf("disks %v of %q", found, paths)
	}
}

// A volume from a snapshot, next to its original: the disk stays offline for the
// collision, and comes online with another identity.
func TestClone_staysOfflineNextToItsSource(t *testing.T) {
	m, calls, number, volume := mounted(t)
	must(t, m.WriteFile(folder+`\data`, 1))
	clone, err := m.CloneDisk(number, "b")
	must(t, err)
	d := openDisk(t, calls, clone)
	attributes, err := win32.DecodeGetDiskAttributes(control(t, d, win32.IoctlDiskGetDiskAttributes, nil))
	if err != nil || attributes.Attributes != win32.DiskAttributeOffline {
		t.Errorf("attributes %d, %v", attributes.Attributes, err)
	}
	control(t, d, win32.IoctlDiskSetDiskAttributes, win32.SetDiskAttributes{Mask: 3}.Encode())
	names, err := calls.Volumes.All()
	must(t, err)
	if len(names) != 3 || names[1] != volume || names[2] == volume {
		t.Fatalf("volumes %q", names)
	}
	root := openRoot(t, calls, names[2])
	if _, err := root.Stat("data"); err != nil {
		t.Errorf("the data: %v", err)
	}
}

// A spec that cannot be is an error and not a strange disk.
func TestAddDisk_refusesWhatCannotBe(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	for name, spec := range map[string]windows.DiskSpec{
		"no size":                   {},
		"half a sector":             {Size: 700},
		"an odd sector":             {Size: gibi, SectorSize: 1000},
		"a table without room":      {Size: 512 << 10, Style: "gpt"},
		"a style that is none":      {Size: gibi, Style: "ldm"},
		"a filesystem that is none": {Size: gibi, Style: "data", FileSystem: "ext4"},
		"a filesystem on nothing":   {Size: gibi, FileSystem: "NTFS"},
		"data beyond the disk":      {Size: gibi, Style: "data", DataSize: 2 * gibi},
		"bytes beyond the disk":     {Size: gibi, Bytes: map[int64][]byte{gibi: {1}}},
	} {
		if _, err := m.AddDisk(spec); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	d := openDisk(t, calls, m.MustAddDisk(windows.DiskSpec{Serial: "small", Size: 64 << 10}))
	for _, c := range []win32.CreateDisk{
		{Style: win32.StyleGPT, MaxPartitions: 128}, {Style: 9}, {Style: win32.StyleGPT, MaxPartitions: 1 << 30},
	} {
		_, err := d.Control(win32.IoctlDiskCreateDisk, c.Encode(), nil)
		refused(t, "a table", err, win32.ErrorInvalidParameter)
	}
}
