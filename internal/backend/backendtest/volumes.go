package backendtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

func volumeRules() []rule {
	return []rule{
		{"a created volume is found by ID, by name and in the list", foundEverywhere},
		{"an equal creation gives the same volume", createTwice},
		{"an incompatible creation is refused and changes nothing", createDifferently},
		{"a size is resolved within the range", sizeRanges},
		{"unknown parameters and capabilities are refused", unknownInput},
		{"each name that CSI allows makes another volume", strangeNames},
		{"an ID that is not the backend's is not found", foreignIDs},
		{"deletion is final and may be repeated", deleteTwice},
		{"pages are complete, ordered and survive deletions", pages},
		{"a page token of another origin is refused", staleToken},
		{"creations of one name at once make one volume", createConcurrently},
		{"a cancelled creation is repeated without a second volume", createCancelled},
		{"volumes survive the end of the process", volumesSurvive},
	}
}

func foundEverywhere(b *bench) {
	volume := b.create("first")
	if volume.Size < b.size() || volume.Name != "first" || volume.ID == "" {
		b.Fatalf("created %+v", volume)
	}
	byID, err := b.guard.Volume(b.ctx(), volume.ID)
	if err != nil || byID.ID != volume.ID || byID.Size != volume.Size {
		b.Fatalf("by ID: %+v, %v; want %+v", byID, err, volume)
	}
	byName, err := b.subject.Controller.VolumeByName(b.ctx(), "first")
	if err != nil || byName.ID != volume.ID {
		b.Fatalf("by name: %+v, %v; want %+v", byName, err, volume)
	}
	if ids := b.volumeIDs(); !slices.Equal(ids, []string{volume.ID}) {
		b.Fatalf("listed %v; want %s alone", ids, volume.ID)
	}
}

func createTwice(b *bench) {
	first, second := b.create("twice"), b.create("twice")
	if first.ID != second.ID {
		b.Fatalf("two volumes of one name: %s and %s", first.ID, second.ID)
	}
	b.wantVolumes(1)
}

func createDifferently(b *bench) {
	volume := b.create("taken")
	larger := b.request("taken")
	larger.Range.Required = volume.Size + b.traits.AllocationUnit
	_, err := b.guard.CreateVolume(b.ctx(), larger)
	b.want(err, backend.ErrExists, "another size")

	limited := b.request("taken")
	limited.Range = backend.SizeRange{Limit: volume.Size - 1}
	_, err = b.guard.CreateVolume(b.ctx(), limited)
	b.want(err, backend.ErrExists, "a limit below the size")

	if b.subject.OtherMutable != nil {
		modified := b.request("taken")
		modified.MutableParameters = b.subject.OtherMutable
		_, err = b.guard.CreateVolume(b.ctx(), modified)
		b.want(err, backend.ErrExists, "other parameters")
	}
	if b.traits.Clone {
		cloned := b.request("taken")
		cloned.Source.VolumeID = volume.ID
		_, err = b.guard.CreateVolume(b.ctx(), cloned)
		b.want(err, backend.ErrExists, "another source")
	}
	after, err := b.guard.Volume(b.ctx(), volume.ID)
	if err != nil || after.Size != volume.Size {
		b.Fatalf("after refusals: %+v, %v; want %+v", after, err, volume)
	}
	b.wantVolumes(1)
}

func sizeRanges(b *bench) {
	unit, least := b.traits.AllocationUnit, b.size()
	for i, c := range []struct {
		give backend.SizeRange
		want int64
		err  error
	}{
		{backend.SizeRange{Required: least}, least, nil},
		{backend.SizeRange{Required: least + 1}, least + unit, nil},
		{backend.SizeRange{Required: least, Limit: least}, least, nil},
		{backend.SizeRange{Limit: least}, least, nil},
		{backend.SizeRange{Required: 1, Limit: math.MaxInt64}, least, nil},
		{backend.SizeRange{Required: least + 1, Limit: least + 2}, 0, backend.ErrOutOfRange},
		{backend.SizeRange{Required: 2 * least, Limit: least}, 0, backend.ErrInvalid},
		{backend.SizeRange{Required: -1}, 0, backend.ErrInvalid},
		{backend.SizeRange{Limit: -1}, 0, backend.ErrInvalid},
		{backend.SizeRange{Required: math.MaxInt64}, 0, backend.ErrOutOfRange},
	} {
		request := b.request(fmt.Sprintf("size-%d", i))
		request.Range = c.give
		volume, err := b.guard.CreateVolume(b.ctx(), request)
		if c.err != nil && unit == 1 && errors.Is(c.err, backend.ErrOutOfRange) && err == nil {
			continue // every size is possible
		}
		if !errors.Is(err, c.err) || volume.Size != c.want {
			b.Errorf("%+v: got %d, %v; want %d, %v", c.give, volume.Size, err, c.want, c.err)
		}
	}
}

func unknownInput(b *bench) {
	unknown := b.request("unknown")
	unknown.Parameters = map[string]string{"no-such-parameter": "x"}
	_, err := b.guard.CreateVolume(b.ctx(), unknown)
	b.want(err, backend.ErrInvalid, "an unknown parameter")
	if !strings.Contains(err.Error(), "no-such-parameter") {
		b.Errorf("the error does not name the parameter: %v", err)
	}
	mutable := b.request("unknown")
	mutable.MutableParameters = map[string]string{"no-such-parameter": "x"}
	_, err = b.guard.CreateVolume(b.ctx(), mutable)
	b.want(err, backend.ErrInvalid, "an unknown mutable parameter")

	filesystem := b.request("unknown")
	filesystem.Capabilities = []backend.Capability{{Mode: b.traits.AccessModes[0], FSType: "minix"}}
	_, err = b.guard.CreateVolume(b.ctx(), filesystem)
	b.want(err, backend.ErrInvalid, "an unknown filesystem")

	none := b.request("unknown")
	none.Capabilities = nil
	_, err = b.guard.CreateVolume(b.ctx(), none)
	b.want(err, backend.ErrInvalid, "no capability")
	b.wantVolumes(0)
}

// strangeNames are legal by CSI spec 1.13 ("Size Limits", names from the CO).
func strangeNames(b *bench) {
	names := []string{
		".", "..", "../../etc/passwd", "a/b", "a b", " a", "-rf", "$(id)", "a\nb", "a\tb", `"'\`, "%s%n", "CON", "A", "a",
		"e\u0301", "\u00e9", strings.Repeat("\u6d77", 42) + "ab", strings.Repeat("x", 128),
	}
	seen := map[string]string{}
	for _, name := range names {
		volume := b.create(name)
		if other, taken := seen[volume.ID]; taken {
			b.Errorf("names %q and %q share volume %s", name, other, volume.ID)
		}
		seen[volume.ID] = name
		if volume.Name != name {
			b.Errorf("name %q came back as %q", name, volume.Name)
		}
	}
	b.wantVolumes(len(names))
}

func foreignIDs(b *bench) {
	b.create("own")
	for _, id := range []string{
		"", ".", "..", "../volumes", "vol-0123456789abcdef0", "/etc/passwd", "pvc-1/data", "csi-" + strings.Repeat("0", 64),
		strings.Repeat("x", 300), "a\x00b",
	} {
		_, err := b.guard.Volume(b.ctx(), id)
		b.want(err, backend.ErrNotFound, fmt.Sprintf("volume %q", id))
		if err := b.guard.DeleteVolume(b.ctx(), id); err != nil {
			b.Errorf("delete %q: %v; want success", id, err)
		}
	}
	b.wantVolumes(1)
}

func deleteTwice(b *bench) {
	volume := b.create("short-lived")
	for range 2 {
		b.must(b.guard.DeleteVolume(b.ctx(), volume.ID))
		_, err := b.guard.Volume(b.ctx(), volume.ID)
		b.want(err, backend.ErrNotFound, "after deletion")
	}
	b.wantVolumes(0)
	b.create("short-lived")
	b.wantVolumes(1)
}

func pages(b *bench) {
	const count = 7
	for i := range count {
		b.create(fmt.Sprintf("page-%d", i))
	}
	all := b.volumeIDs()
	if !slices.IsSorted(all) || len(all) != count {
		b.Fatalf("listed %v; want %d in order", all, count)
	}
	var paged []string
	token := ""
	for {
		volumes, next, err := b.guard.Volumes(b.ctx(), token, 3)
		b.must(err)
		for _, volume := range volumes {
			paged = append(paged, volume.ID)
		}
		if token = next; token == "" {
			break
		}
		// The volume that the token names may go away between two pages.
		b.must(b.guard.DeleteVolume(b.ctx(), paged[len(paged)-1]))
	}
	if !slices.Equal(paged, all) {
		b.Fatalf("pages gave %v; want %v", paged, all)
	}
	_, _, err := b.guard.Volumes(b.ctx(), "", -1)
	b.want(err, backend.ErrInvalid, "a negative page size")
}

func staleToken(b *bench) {
	for _, token := range []string{"x", "0", "123456", "\x00", "djEgYWZ0ZXIg"} {
		_, _, err := b.guard.Volumes(b.ctx(), token, 1)
		b.want(err, backend.ErrStaleToken, fmt.Sprintf("token %q", token))
	}
}

func createConcurrently(b *bench) {
	var group sync.WaitGroup
	var mu sync.Mutex
	made := map[string]int{}
	for range 8 {
		group.Go(func() {
			volume, err := b.guard.CreateVolume(b.ctx(), b.request("contended"))
			if err != nil && !errors.Is(err, backend.ErrBusy) {
				b.Errorf("got %v; want a volume or ErrBusy", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made[volume.ID]++
			}
		})
	}
	group.Wait()
	if len(made) != 1 {
		b.Fatalf("volumes %v; want one", made)
	}
	b.wantVolumes(1)
}

func createCancelled(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx())
	cancel()
	_, err := b.guard.CreateVolume(ctx, b.request("cancelled"))
	if err != nil && !errors.Is(err, context.Canceled) {
		b.Errorf("got %v; want the context's error", err)
	}
	b.create("cancelled")
	b.wantVolumes(1)
}

func volumesSurvive(b *bench) {
	volume := b.create("durable")
	after := b.reopened()
	found, err := after.guard.Volume(b.ctx(), volume.ID)
	if err != nil || found.Size != volume.Size || found.Name != volume.Name {
		b.Fatalf("after reopening: %+v, %v; want %+v", found, err, volume)
	}
	if again := after.create("durable"); again.ID != volume.ID {
		b.Fatalf("an equal creation after reopening made %s; want %s", again.ID, volume.ID)
	}
	after.wantVolumes(1)
}
