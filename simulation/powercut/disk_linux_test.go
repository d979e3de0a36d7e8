package powercut

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

func newDisk(t *testing.T, size int64) *Disk {
	t.Helper()
	disk, err := New(t.Context(), nodetest.Dir(t), size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	return disk
}

func openDevice(t *testing.T, disk *Disk, flags int) *os.File {
	t.Helper()
	device, err := os.OpenFile(disk.Path, os.O_RDWR|flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = device.Close() })
	return device
}

// aligned is a buffer that direct I/O accepts.
func aligned(t *testing.T, content byte) []byte {
	t.Helper()
	memory, err := unix.Mmap(-1, 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(memory) })
	copy(memory, bytes.Repeat([]byte{content}, pageSize))
	return memory
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func stop(t *testing.T, disk *Disk) *Recording {
	t.Helper()
	recording, err := disk.Stop()
	must(t, err)
	return recording
}

// TestRecordedDisk is the process of a disk.
func TestRecordedDisk(t *testing.T) { must(t, Serve()) }

func kinds(recording *Recording) (kinds []Kind) {
	for _, event := range recording.Events {
		kinds = append(kinds, event.Kind)
	}
	return kinds
}

// A flush is recorded after the write that it makes durable, and none without one.
func TestDisk_recordsAFlushAfterTheWriteThatAsksForIt(t *testing.T) {
	for name, c := range map[string]struct {
		flags int
		sync  bool
		want  []Kind
	}{
		"a write":                    {unix.O_DIRECT, false, []Kind{Write}},
		"a write and fsync":          {unix.O_DIRECT, true, []Kind{Write, Flush}},
		"a write with forced access": {unix.O_DIRECT | unix.O_DSYNC, false, []Kind{Write, Flush}},
		"a write in the page cache":  {0, false, nil},
		"and its fsync":              {0, true, []Kind{Write, Flush}},
	} {
		t.Run(name, func(t *testing.T) {
			disk := newDisk(t, 1<<20)
			device := openDevice(t, disk, c.flags)
			must(t, disk.Record(512))
			if _, err := device.WriteAt(aligned(t, 'x'), pageSize); err != nil {
				t.Fatal(err)
			}
			if c.sync {
				if err := device.Sync(); err != nil {
					t.Fatal(err)
				}
			}
			if got := slices.Compact(kinds(stop(t, disk))); !slices.Equal(got, c.want) {
				t.Errorf("recorded %v; want %v", got, c.want)
			}
		})
	}
}

func TestDisk_recordsDiscards(t *testing.T) {
	disk := newDisk(t, 1<<20)
	device := openDevice(t, disk, unix.O_DIRECT)
	if _, err := device.WriteAt(aligned(t, 'x'), 0); err != nil {
		t.Fatal(err)
	}
	must(t, disk.Record(512))
	span := [2]uint64{0, pageSize}
	if err := discard(device, &span); err != nil {
		t.Fatal(err)
	}
	recording := stop(t, disk)
	if len(recording.Events) != 1 || recording.Events[0].Kind != Zero || recording.Events[0].Length != pageSize {
		t.Fatalf("recorded %+v; want one discarded page", recording.Events)
	}
}

// A state is what the device reads, and changes of it are not in the next one.
func TestDisk_insertReplacesTheContent(t *testing.T) {
	disk := newDisk(t, 1<<20)
	device := openDevice(t, disk, unix.O_DIRECT)
	_, err := device.WriteAt(aligned(t, 'b'), 0)
	must(t, err)
	must(t, disk.Record(512))
	_, err = device.WriteAt(aligned(t, 'c'), 0)
	must(t, err)
	must(t, device.Close())
	recording := stop(t, disk)
	for range 2 {
		for state := range recording.States(Choice{PerFlush: 1, Seed: 1}) {
			must(t, disk.Insert(state))
			device := openDevice(t, disk, 0)
			got, want := make([]byte, pageSize), "bc"[len(state.Survived)]
			if _, err := device.ReadAt(got, 0); err != nil || got[0] != want || got[pageSize-1] != want {
				t.Fatalf("%s: read %q, %v; want %q", state, got[:1], err, want)
			}
			_, err := device.WriteAt([]byte{'d'}, 0)
			must(t, err)
			must(t, device.Close())
		}
	}
}

func TestRecording_isTheSameAfterSaveAndLoad(t *testing.T) {
	disk := newDisk(t, 1<<20)
	device := openDevice(t, disk, unix.O_DIRECT)
	for _, offset := range []int64{0, pageSize} {
		if _, err := device.WriteAt(aligned(t, 'x'), offset); err != nil {
			t.Fatal(err)
		}
		must(t, disk.Record(512))
	}
	if _, err := device.WriteAt(aligned(t, 'y'), 2*pageSize); err != nil {
		t.Fatal(err)
	}
	must(t, disk.Mark("done"))
	recording := stop(t, disk)
	path := filepath.Join(t.TempDir(), "recording")
	if err := recording.Save(path); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	want, got := describe(recording), describe(loaded)
	if !slices.Equal(want, got) {
		t.Errorf("loaded\n%q\nof\n%q", got, want)
	}
}

// describe lists the states with the first byte of each page.
func describe(r *Recording) (all []string) {
	builder := newBuilder(r)
	for state := range r.States(Choice{PerFlush: 4, Seed: 1}) {
		image, err := builder.build(state)
		if err != nil {
			return append(all, err.Error())
		}
		text := state.String() + ":"
		for number := range image.size / pageSize {
			first := make([]byte, 1)
			image.read(first, number*pageSize)
			text += string(first)
		}
		all = append(all, text)
	}
	return all
}
