package backendtest

import (
	"strings"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

func inlineRules() []rule {
	return []rule{
		{"an inline volume is made once, used and removed", inlineLife},
		{"an inline volume is not in the controller's list", inlineHidden},
		{"attributes of an administrator are refused", inlineAttributes},
		{"inline volumes survive the end of the process", inlineSurvives},
	}
}

const handle = "csi-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// inline returns the subject as a backend of inline volumes, or nil.
func (b *bench) inline() backend.Ephemeral {
	ephemeral, _ := b.subject.Node.(backend.Ephemeral)
	return ephemeral
}

func (b *bench) createInline(e backend.Ephemeral) backend.EphemeralVolume {
	b.Helper()
	volume, err := e.CreateEphemeral(b.ctx(), backend.EphemeralSpec{Handle: handle, Target: "/pods/1/mount"})
	b.must(err)
	return volume
}

func inlineLife(b *bench) {
	e := b.inline()
	if e == nil {
		return
	}
	first, second := b.createInline(e), b.createInline(e)
	if first != second || first.Handle != handle || first.Target != "/pods/1/mount" || first.Size <= 0 {
		b.Fatalf("inline volumes %+v and %+v; want one", first, second)
	}
	b.write(first.VolumeID, 0, 'i')
	b.wantContent(first.VolumeID, 0, 'i', "the inline volume")
	for range 2 {
		b.must(e.DeleteEphemeral(b.ctx(), handle))
		_, err := e.EphemeralByHandle(b.ctx(), handle)
		b.want(err, backend.ErrNotFound, "after deletion")
	}
	b.wantContent(b.createInline(e).VolumeID, 0, 0, "a new inline volume of the same handle")
}

func inlineHidden(b *bench) {
	e := b.inline()
	if e == nil {
		return
	}
	volume := b.createInline(e)
	b.wantVolumes(0)
	_, err := b.guard.Volume(b.ctx(), volume.VolumeID)
	b.want(err, backend.ErrNotFound, "an inline volume through the controller")
	b.must(b.guard.DeleteVolume(b.ctx(), volume.VolumeID))
	if _, err := e.EphemeralByHandle(b.ctx(), handle); err != nil {
		b.Fatalf("the controller removed an inline volume: %v", err)
	}
}

func inlineAttributes(b *bench) {
	e := b.inline()
	if e == nil {
		return
	}
	for _, key := range []string{"path", "pool", "volumeID", "no-such-attribute"} {
		_, err := e.CreateEphemeral(b.ctx(), backend.EphemeralSpec{
			Handle: handle, Target: "/pods/1/mount", Attributes: map[string]string{key: "x"},
		})
		b.want(err, backend.ErrInvalid, "attribute "+key)
		if !strings.Contains(err.Error(), key) {
			b.Errorf("the error does not name %q: %v", key, err)
		}
	}
	left, err := e.Ephemerals(b.ctx())
	if err != nil || len(left) != 0 {
		b.Fatalf("refused volumes left %v, %v", left, err)
	}
}

func inlineSurvives(b *bench) {
	if b.inline() == nil {
		return
	}
	volume := b.createInline(b.inline())
	after := b.reopened().inline()
	if after == nil {
		b.Fatal("the reopened backend has no inline volumes")
	}
	all, err := after.Ephemerals(b.ctx())
	if err != nil || len(all) != 1 || all[0] != volume {
		b.Fatalf("after reopening: %+v, %v; want %+v", all, err, volume)
	}
}
