package backendtest

import (
	"maps"
	"math"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

func changeRules() []rule {
	return []rule{
		{"a volume grows, and never shrinks", expand},
		{"an impossible growth changes nothing", expandImpossible},
		{"a modification applies whole or not at all", modify},
		{"capacity can be used as promised", capacity},
		{"a healthy volume has no problems", health},
	}
}

func expand(b *bench) {
	if !b.guard.Features().Expand {
		return
	}
	volume := b.create("growing")
	larger := volume.Size + b.traits.AllocationUnit
	for range 2 { // the repeat finds it done
		grown, err := b.guard.Expand(b.ctx(), volume.ID, backend.SizeRange{Required: larger})
		if err != nil || grown.Size != larger {
			b.Fatalf("got %+v, %v; want %d bytes", grown, err, larger)
		}
	}
	kept, err := b.guard.Expand(b.ctx(), volume.ID, backend.SizeRange{Required: 1})
	if err != nil || kept.Size != larger {
		b.Fatalf("a smaller desired size: %+v, %v; want the %d bytes it has", kept, err, larger)
	}
	found, err := b.reopened().guard.Volume(b.ctx(), volume.ID)
	if err != nil || found.Size != larger {
		b.Fatalf("after reopening: %+v, %v", found, err)
	}
}

func expandImpossible(b *bench) {
	if !b.guard.Features().Expand {
		return
	}
	volume := b.create("growing")
	for why, c := range map[string]struct {
		give backend.SizeRange
		want error
	}{
		"no bound":            {backend.SizeRange{}, backend.ErrInvalid},
		"negative":            {backend.SizeRange{Required: -5}, backend.ErrInvalid},
		"limit below size":    {backend.SizeRange{Limit: volume.Size - 1}, backend.ErrOutOfRange},
		"limit too tight":     {backend.SizeRange{Required: volume.Size + 1, Limit: volume.Size + 1}, backend.ErrOutOfRange},
		"more than an int64":  {backend.SizeRange{Required: math.MaxInt64}, backend.ErrOutOfRange},
		"limit below request": {backend.SizeRange{Required: 2 * volume.Size, Limit: volume.Size}, backend.ErrInvalid},
	} {
		if b.traits.AllocationUnit == 1 && why == "limit too tight" {
			continue
		}
		_, err := b.guard.Expand(b.ctx(), volume.ID, c.give)
		b.want(err, c.want, why)
	}
	_, err := b.guard.Expand(b.ctx(), "vol-absent", backend.SizeRange{Required: b.size()})
	b.want(err, backend.ErrNotFound, "an absent volume")
	found, err := b.guard.Volume(b.ctx(), volume.ID)
	if err != nil || found.Size != volume.Size {
		b.Fatalf("after refusals: %+v, %v; want %d bytes", found, err, volume.Size)
	}
}

func modify(b *bench) {
	if !b.guard.Features().Modify || b.subject.OtherMutable == nil {
		return
	}
	volume := b.create("changing")
	for range 2 {
		b.must(b.guard.Modify(b.ctx(), volume.ID, b.subject.OtherMutable, nil))
	}
	unknown := maps.Clone(b.subject.OtherMutable)
	unknown["no-such-parameter"] = "x"
	b.want(b.guard.Modify(b.ctx(), volume.ID, unknown, nil), backend.ErrInvalid, "an unknown parameter")
	b.must(b.guard.Modify(b.ctx(), volume.ID, nil, nil))
	for _, mutable := range []map[string]string{b.subject.OtherMutable, unknown, nil} {
		b.want(b.guard.Modify(b.ctx(), "vol-absent", mutable, nil), backend.ErrNotFound, "an absent volume")
	}
	// The request that made the volume still finds it.
	if again := b.create("changing"); again.ID != volume.ID {
		b.Fatalf("the creation repeated after a modification made %s; want %s", again.ID, volume.ID)
	}
}

func capacity(b *bench) {
	if !b.guard.Features().Capacity {
		return
	}
	before, err := b.guard.Capacity(b.ctx(), b.subject.Parameters, nil, nil)
	b.must(err)
	if before.Available < b.size() {
		b.Fatalf("a fresh backend has %d bytes; the tests need %d", before.Available, b.size())
	}
	request := b.request("all of it")
	request.Range.Required = before.Available / b.traits.AllocationUnit * b.traits.AllocationUnit
	if before.MaximumVolumeSize > 0 {
		request.Range.Required = min(request.Range.Required, before.MaximumVolumeSize)
	}
	b.createAs(request)
	after, err := b.guard.Capacity(b.ctx(), b.subject.Parameters, nil, nil)
	if err != nil || after.Available >= before.Available {
		b.Fatalf("after a volume of %d bytes: %+v, %v; before: %+v", request.Range.Required, after, err, before)
	}
	impossible := []backend.Capability{{Mode: b.traits.AccessModes[0], FSType: "minix"}}
	none, err := b.guard.Capacity(b.ctx(), b.subject.Parameters, impossible, nil)
	if err != nil || none.Available != 0 {
		b.Fatalf("for an impossible capability: %+v, %v; want nothing", none, err)
	}
}

func health(b *bench) {
	if !b.guard.Features().Health {
		return
	}
	volume := b.create("well")
	problems, err := b.guard.VolumeHealth(b.ctx(), volume.ID)
	if err != nil || len(problems) != 0 {
		b.Fatalf("got %v, %v; want a healthy volume", problems, err)
	}
	_, err = b.guard.VolumeHealth(b.ctx(), "vol-absent")
	b.want(err, backend.ErrNotFound, "an absent volume")
	unwell, next, err := b.guard.UnhealthyVolumes(b.ctx(), "", 0)
	if err != nil || next != "" || len(unwell) != 0 {
		b.Fatalf("unhealthy: %v, %q, %v; want none", unwell, next, err)
	}
}
