package backendtest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

func deviceRules() []rule {
	return []rule{
		{"a device has the volume's size and reads zeros at first", blankDevice},
		{"data is there after closing and reopening", dataStays},
		{"an open device is given again, not a second one", openTwice},
		{"a read-only device refuses writes", readOnlyDevice},
		{"readers and writers have the one device of a volume in turn", accessChanges},
		{"no device for an absent volume; closing it is done", absentDevice},
		{"an attached volume is not deleted", deleteAttached},
		{"a device sees the growth of its volume", deviceGrows},
		{"a snapshot keeps the data of its instant", snapshotContent},
		{"data written is listed, in the volume and in a clone", writtenIsListed},
		{"a clone has its source's data and then its own", cloneContent},
		{"a deleted volume's data does not return", dataGone},
		{"a format mark stays with the volume", formatMark},
	}
}

func (b *bench) open(id string, readOnly bool) *backend.Device {
	b.Helper()
	device, err := b.subject.Node.OpenDevice(b.ctx(), backend.DeviceRequest{VolumeID: id, ReadOnly: readOnly, Keep: true})
	if err != nil {
		b.Fatalf("open device of %s: %v", id, err)
	}
	b.Cleanup(func() { _ = device.Release() })
	return device
}

func (b *bench) close(id string, device *backend.Device) {
	b.Helper()
	b.must(device.Release())
	b.must(b.subject.Node.CloseDevice(b.ctx(), id))
	left, err := b.subject.Node.Devices(b.ctx(), id)
	if err != nil || len(left) != 0 {
		b.Fatalf("closed %s and still see %v, %v", id, left, err)
	}
}

// write puts a pattern at an offset through the device and makes it durable.
func (b *bench) write(id string, offset int64, pattern byte) {
	b.Helper()
	device := b.open(id, false)
	file, err := os.OpenFile(device.Path, os.O_RDWR, 0)
	b.must(err)
	_, err = file.WriteAt(bytes.Repeat([]byte{pattern}, 8192), offset)
	b.must(errors.Join(err, file.Sync(), file.Close()))
	b.close(id, device)
}

// read returns the first and last byte of a block of a volume.
func (b *bench) read(id string, offset int64) []byte {
	b.Helper()
	device := b.open(id, false)
	file, err := os.Open(device.Path)
	b.must(err)
	block := make([]byte, 8192)
	_, err = file.ReadAt(block, offset)
	b.must(errors.Join(err, file.Close()))
	b.close(id, device)
	return block
}

func (b *bench) wantContent(id string, offset int64, pattern byte, why string) {
	b.Helper()
	if got := b.read(id, offset); !bytes.Equal(got, bytes.Repeat([]byte{pattern}, len(got))) {
		b.Fatalf("%s: at %d is %d…; want %d", why, offset, got[0], pattern)
	}
}

func blankDevice(b *bench) {
	if b.subject.Node == nil {
		return
	}
	volume := b.create("blank")
	device := b.open(volume.ID, false)
	if device.Size != volume.Size || device.ReadOnly || device.Number == 0 || device.SectorSize < 512 {
		b.Fatalf("device %+v of %+v", device, volume)
	}
	file, err := os.Open(device.Path)
	b.must(err)
	content, err := io.ReadAll(file)
	b.must(errors.Join(err, file.Close()))
	if int64(len(content)) != volume.Size || len(bytes.Trim(content, "\x00")) != 0 {
		b.Fatalf("read %d bytes, not all of them zero; want %d zeros", len(content), volume.Size)
	}
	b.close(volume.ID, device)
}

func dataStays(b *bench) {
	if b.subject.Node == nil {
		return
	}
	volume := b.create("kept")
	b.write(volume.ID, 0, 'a')
	b.write(volume.ID, volume.Size-8192, 'z')
	after := b.reopened()
	after.wantContent(volume.ID, 0, 'a', "the start")
	after.wantContent(volume.ID, volume.Size-8192, 'z', "the end")
}

func openTwice(b *bench) {
	if b.subject.Node == nil {
		return
	}
	volume := b.create("shared")
	first, second := b.open(volume.ID, false), b.open(volume.ID, false)
	if first.Number != second.Number {
		b.Fatalf("two devices %s and %s for one volume", first.Path, second.Path)
	}
	listed, err := b.subject.Node.Devices(b.ctx(), volume.ID)
	if err != nil || len(listed) != 1 || listed[0].Number != first.Number {
		b.Fatalf("listed %+v, %v; want %s alone", listed, err, first.Path)
	}
	b.must(first.Release())
	b.close(volume.ID, second)
	b.must(b.subject.Node.CloseDevice(b.ctx(), volume.ID))
}

func readOnlyDevice(b *bench) {
	if b.subject.Node == nil {
		return
	}
	volume := b.create("read-only")
	device := b.open(volume.ID, true)
	if !device.ReadOnly {
		b.Fatalf("device %+v", device)
	}
	if file, err := os.OpenFile(device.Path, os.O_RDWR, 0); err == nil {
		_, writeErr := file.WriteAt([]byte{1}, 0)
		b.must(file.Close())
		if writeErr == nil {
			b.Fatal("wrote through a read-only device")
		}
	}
	b.close(volume.ID, device)
}

// accessChanges has a reader that keeps the device open: a separate device would show
// it stale data.
func accessChanges(b *bench) {
	if b.subject.Node == nil {
		return
	}
	volume := b.create("in turn")
	writable := b.open(volume.ID, false)
	reader, err := os.Open(writable.Path)
	b.must(err)
	for pattern := byte(1); pattern < 4; pattern++ {
		again := b.open(volume.ID, false)
		file, err := os.OpenFile(again.Path, os.O_RDWR, 0)
		b.must(err)
		_, err = file.WriteAt([]byte{pattern}, 0)
		b.must(errors.Join(err, file.Sync(), file.Close(), again.Release()))
		device := b.open(volume.ID, true)
		got := []byte{0}
		_, err = reader.ReadAt(got, 0)
		b.must(err)
		if device.Number != writable.Number || !device.ReadOnly || got[0] != pattern {
			b.Fatalf("device %+v shows %d; want %s, read-only, with %d", device, got[0], writable.Path, pattern)
		}
		listed, err := b.subject.Node.Devices(b.ctx(), volume.ID)
		if err != nil || len(listed) != 1 || !listed[0].ReadOnly {
			b.Fatalf("listed %+v, %v; want one read-only device", listed, err)
		}
		b.must(device.Release())
	}
	b.must(reader.Close())
	b.close(volume.ID, writable)
	device := b.open(volume.ID, false)
	if device.ReadOnly {
		b.Fatalf("device %+v is read-only after its volume was closed", device)
	}
	b.close(volume.ID, device)
}

// writtenIsListed is for nodes that know data written: a write that they do
// not list could be formatted over.
func writtenIsListed(b *bench) {
	lister, ok := b.subject.Node.(backend.WrittenLister)
	if !ok {
		return
	}
	volume := b.create("listed")
	offsets := []int64{0, 8192, volume.Size/2 + 8192, volume.Size - 8192}
	listed := func(id string) (missing []int64) {
		missing = offsets
		end := int64(-1)
		b.must(lister.WrittenRanges(b.ctx(), id, func(offset, length int64) error {
			if offset <= end || length <= 0 || offset+length > volume.Size {
				b.Fatalf("range of %d bytes at %d after %d of a volume of %d", length, offset, end, volume.Size)
			}
			end = offset + length - 1
			missing = slices.DeleteFunc(slices.Clone(missing),
				func(at int64) bool { return at >= offset && at+8192 <= offset+length })
			return nil
		}))
		return missing
	}
	for i, offset := range offsets {
		b.write(volume.ID, offset, byte(i+1))
		for _, missing := range listed(volume.ID) {
			if slices.Contains(offsets[:i+1], missing) {
				b.Fatalf("data written at %d is not listed", missing)
			}
		}
	}
	if b.traits.Clone {
		request := b.request("listed clone")
		request.Source.VolumeID = volume.ID
		clone := b.createAs(request)
		if missing := listed(clone.ID); len(missing) != 0 {
			b.Fatalf("a clone does not list what its source has at %v", missing)
		}
	}
	stop := errors.New("stop")
	b.want(lister.WrittenRanges(b.ctx(), volume.ID, func(int64, int64) error { return stop }), stop, "the error of visit")
	b.want(lister.WrittenRanges(b.ctx(), "vol-absent", func(int64, int64) error { return nil }), backend.ErrNotFound,
		"an absent volume")
}

func absentDevice(b *bench) {
	if b.subject.Node == nil {
		return
	}
	for _, id := range []string{"vol-absent", "../x", ""} {
		_, err := b.subject.Node.OpenDevice(b.ctx(), backend.DeviceRequest{VolumeID: id})
		b.want(err, backend.ErrNotFound, "volume "+id)
		b.must(b.subject.Node.CloseDevice(b.ctx(), id))
		devices, err := b.subject.Node.Devices(b.ctx(), id)
		if err != nil || len(devices) != 0 {
			b.Fatalf("devices of %q: %v, %v", id, devices, err)
		}
	}
}

func deleteAttached(b *bench) {
	if b.subject.Node == nil || b.guard.Features().Attach {
		return // where volumes are attached by a controller, the controller knows
	}
	volume := b.create("busy")
	device := b.open(volume.ID, false)
	b.want(b.guard.DeleteVolume(b.ctx(), volume.ID), backend.ErrInUse, "an attached volume")
	b.close(volume.ID, device)
	b.must(b.guard.DeleteVolume(b.ctx(), volume.ID))
}

func deviceGrows(b *bench) {
	if b.subject.Node == nil || !b.guard.Features().Expand {
		return
	}
	volume := b.create("growing")
	device := b.open(volume.ID, false)
	larger := volume.Size + b.traits.AllocationUnit
	_, err := b.guard.Expand(b.ctx(), volume.ID, backend.SizeRange{Required: larger})
	b.must(err)
	for range 2 {
		size, err := b.subject.Node.ResizeDevice(b.ctx(), volume.ID)
		if err != nil || size != larger {
			b.Fatalf("resized to %d, %v; want %d", size, err, larger)
		}
	}
	b.close(volume.ID, device)
	if size, err := b.subject.Node.ResizeDevice(b.ctx(), volume.ID); err != nil || size != 0 {
		b.Fatalf("with no device: %d, %v; want 0", size, err)
	}
}

func snapshotContent(b *bench) {
	if b.subject.Node == nil || !b.snapshots() {
		return
	}
	volume := b.create("source")
	b.write(volume.ID, 4096, '1')
	snapshot := b.snapshot("snapshot", volume.ID)
	b.write(volume.ID, 4096, '2')
	restore := b.request("restored")
	restore.Source.SnapshotID = snapshot.ID
	restore.Range.Required = volume.Size + b.traits.AllocationUnit
	restored := b.createAs(restore)
	b.wantContent(restored.ID, 4096, '1', "the restored volume")
	b.wantContent(restored.ID, volume.Size, 0, "beyond the source's end")
	b.write(restored.ID, 4096, '3')
	b.wantContent(volume.ID, 4096, '2', "the source")
	again := b.request("restored again")
	again.Source.SnapshotID = snapshot.ID
	b.wantContent(b.createAs(again).ID, 4096, '1', "a second restore")
}

func cloneContent(b *bench) {
	if b.subject.Node == nil || !b.traits.Clone {
		return
	}
	volume := b.create("source")
	b.write(volume.ID, 0, '1')
	request := b.request("clone")
	request.Source.VolumeID = volume.ID
	clone := b.createAs(request)
	b.write(volume.ID, 0, '2')
	b.wantContent(clone.ID, 0, '1', "the clone")
	b.write(clone.ID, 0, '3')
	b.wantContent(volume.ID, 0, '2', "the source")
}

func dataGone(b *bench) {
	if b.subject.Node == nil {
		return
	}
	volume := b.create("secret")
	b.write(volume.ID, 0, 's')
	b.must(b.guard.DeleteVolume(b.ctx(), volume.ID))
	b.wantContent(b.create("secret").ID, 0, 0, "a new volume of the same name")
}

func formatMark(b *bench) {
	recorder, ok := b.subject.Node.(backend.FormatRecorder)
	if !ok {
		return
	}
	volume := b.create("formatted")
	mark, err := recorder.FormatMark(b.ctx(), volume.ID)
	if err != nil || mark != (backend.FormatMark{}) {
		b.Fatalf("a new volume is marked %+v, %v", mark, err)
	}
	for _, want := range []backend.FormatMark{
		{FSType: "ext4"}, {FSType: "ext4", Done: true}, {FSType: "ext4", Done: true, Resizing: true}, {Resizing: true},
	} {
		b.must(recorder.SetFormatMark(b.ctx(), volume.ID, want))
		after, isRecorder := b.reopened().subject.Node.(backend.FormatRecorder)
		if !isRecorder {
			b.Fatal("the reopened backend keeps no marks")
		}
		recorder = after
		if got, err := recorder.FormatMark(b.ctx(), volume.ID); err != nil || got != want {
			b.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
	}
	_, err = recorder.FormatMark(b.ctx(), "vol-absent")
	b.want(err, backend.ErrNotFound, "an absent volume")
}
