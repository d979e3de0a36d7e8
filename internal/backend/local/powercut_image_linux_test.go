package local

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-csi/holdfast/simulation/powercut"
	"github.com/holdfast-csi/holdfast/simulation/powercut/powertest"
)

const (
	smallImage = 304 * mebibyte
	grownImage = 336 * mebibyte
)

// imageCut is a pool on an image, whose file is on a recorded disk.
type imageCut struct {
	*powertest.Lab
	operation imageOperation
}

// imageOperation opens the pool and makes a volume on it.
type imageOperation struct {
	// before is the image's size before it, 0 without an image; after is that at the end.
	before, after int64
	// old is a volume that is there before, "" if there is none; new is the one it makes.
	old, new string
}

func imageOperations() map[string]imageOperation {
	return map[string]imageOperation{
		"image is made":  {0, smallImage, "", "one"},
		"image is grown": {smallImage, grownImage, "one", "two"},
	}
}

func newImageCut(t testing.TB, fsType, operation string) *imageCut {
	t.Helper()
	return &imageCut{powertest.New(t, fsType, powerFlags), imageOperations()[operation]}
}

func (l *imageCut) options(size int64) Options {
	return Options{
		Pool: filepath.Join(l.Mount, "pool"), PoolImage: &ImageOptions{Path: filepath.Join(l.Mount, "image"), Size: size},
	}
}

// with opens the pool for a step, then closes it and unmounts the image.
func (l *imageCut) with(t testing.TB, size int64, step func(*Pool)) {
	t.Helper()
	options := l.options(size)
	defer unmountIfMounted(t, options.Pool)
	pool, err := tryOpen(t, options)
	if err != nil {
		t.Fatalf("open the pool: %v", err)
	}
	defer func() { must(t, pool.Close()) }()
	step(pool)
}

// imagePattern is written to each volume, and read again.
func imagePattern() []byte { return bytes.Repeat([]byte{7}, 64<<10) }

func makePatterned(t testing.TB, pool *Pool, name string) {
	t.Helper()
	writeVolume(t, pool, create(t, pool, spec(name, 8*mebibyte)).ID, mebibyte, imagePattern())
}

func wantPattern(t testing.TB, pool *Pool, name string) {
	t.Helper()
	if got := readVolume(t, pool, idOf(volumePrefix, name), mebibyte, len(imagePattern())); !bytes.Equal(got, imagePattern()) {
		t.Errorf("volume %s has lost what was written", name)
	}
}

func (l *imageCut) record(t *testing.T, name string) *powercut.Recording {
	t.Helper()
	l.Format(t)
	defer l.Unmount(t)
	must(t, os.Mkdir(l.options(0).Pool, 0o700))
	o := l.operation
	if o.before > 0 {
		l.with(t, o.before, func(pool *Pool) { makePatterned(t, pool, o.old) })
	}
	l.Begin(t)
	l.with(t, o.after, func(pool *Pool) {
		makePatterned(t, pool, o.new)
		l.Mark(t, acknowledged)
	})
	recording := l.Stop(t)
	var err error
	recording.Facts, err = json.Marshal(labFacts{FSType: l.FSType, Operation: name})
	must(t, err)
	return recording
}

// check: the next start has the image in its size with the volumes that were acknowledged,
// whatever step of its creation or growth the power was cut in; and the one after that.
func (l *imageCut) check(t testing.TB, state powercut.State) {
	there := []string{}
	if l.operation.old != "" {
		there = append(there, l.operation.old)
	}
	if slices.Contains(state.Marks, acknowledged) {
		there = append(there, l.operation.new)
	}
	for range 2 {
		l.with(t, l.operation.after, func(pool *Pool) {
			if !pool.reflink.Load() {
				t.Error("the pool is not on the image")
			}
			// The log of xfs takes 64 MiB, which is less than a quarter: one that was not
			// grown has fewer.
			if got := totalOf(t, l.options(0).Pool); got < l.operation.after*3/4 {
				t.Errorf("the pool has %d bytes, of an image of %d", got, l.operation.after)
			}
			for _, name := range there {
				wantPattern(t, pool, name)
			}
			makePatterned(t, pool, l.operation.new)
			wantAgreement(t.Context(), t, pool, "after the repeated call")
		})
		there = append(there, l.operation.new)
	}
}

// imageChoice limits the states: each takes several times as long as one without an image.
func imageChoice() powercut.Choice {
	choice := powerFlags.Choice(1)
	choice.PerFlush = min(choice.PerFlush, 20)
	return choice
}

// The power is cut while a pool image is made or grown, and while the first volume is made
// on it: `make test` has it on xfs, `make test-powercut` on all filesystems.
func TestPowerCut_losesNoPoolImage(t *testing.T) {
	t.Parallel()
	if kept := powerFlags.Kept(t); kept != nil {
		var facts labFacts
		must(t, json.Unmarshal(kept.Facts, &facts))
		if _, isMine := imageOperations()[facts.Operation]; isMine {
			l := newImageCut(t, facts.FSType, facts.Operation)
			must(t, l.Disk.Load(kept))
			l.WantSafe(t, kept, facts.Operation, imageChoice(), l.check)
		}
		return
	}
	filesystems := []string{"xfs"}
	if powerFlags.AreGiven() {
		filesystems = []string{"xfs", "ext4", "btrfs"}
	}
	for _, fsType := range filesystems {
		for _, operation := range slices.Sorted(maps.Keys(imageOperations())) {
			t.Run(fsType+" "+operation, func(t *testing.T) {
				t.Parallel()
				l := newImageCut(t, fsType, operation)
				l.WantSafe(t, l.record(t, operation), operation, imageChoice(), l.check)
			})
		}
	}
}

// A disk that ignores flushes loses an image that was made.
func TestPowerCut_findsThatAnImageIsLost(t *testing.T) {
	t.Parallel()
	for operation := range imageOperations() {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			l := newImageCut(t, "xfs", operation)
			recording := l.record(t, operation).WithoutFlushes(func(int) bool { return true })
			found, tried := l.FirstUnsafe(t, recording, powercut.Choice{PerFlush: 4, Seed: 1}, l.check)
			if found == "" {
				t.Fatalf("%d states do not show the loss", tried)
			}
			t.Logf("found by state %d: %.300s", tried, found)
		})
	}
}
