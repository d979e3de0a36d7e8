package blockdev

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/node/nodetest"
)

func newIndex(t *testing.T) *LoopIndex {
	t.Helper()
	x, err := NewLoopIndex()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

func wantLoops(t *testing.T, x *LoopIndex, file *os.File, want ...*Loop) {
	t.Helper()
	var desired []int
	for _, loop := range want {
		desired = append(desired, loop.Index)
	}
	found, err := x.Of(file)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(desired)
	if got := indexesOf(found); !slices.Equal(got, desired) {
		t.Fatalf("found loops %v of %s; want %v", got, file.Name(), desired)
	}
}

func indexesOf(loops []Loop) (indexes []int) {
	for _, loop := range loops {
		indexes = append(indexes, loop.Index)
	}
	slices.Sort(indexes)
	return indexes
}

func TestLoopIndex_readsOnlyWhatChanged(t *testing.T) {
	dir := nodetest.Dir(t)
	x := newIndex(t)
	file, other := nodetest.File(t, dir, "data", mebibyte), nodetest.File(t, dir, "other", mebibyte)
	wantLoops(t, x, file)
	loop := attach(t, LoopConfig{File: file, Path: file.Name()})
	wantLoops(t, x, file, loop)
	second := attach(t, LoopConfig{File: file, Path: file.Name(), ReadOnly: true})
	wantLoops(t, x, file, loop, second)
	wantLoops(t, x, other)
	if err := errors.Join(loop.Close(), loop.Detach()); err != nil {
		t.Fatal(err)
	}
	wantLoops(t, x, file, second)
	if scans := x.started.Load(); scans != 1 {
		t.Errorf("all devices were read %d times; want once", scans)
	}
}

// unannounced attaches a file as Linux 6.14 does: the index sees no event of it.
func unannounced(t *testing.T, x *LoopIndex, file *os.File) *Loop {
	t.Helper()
	if _, err := x.Of(file); err != nil {
		t.Fatal(err)
	}
	loop := attach(t, LoopConfig{File: file, Path: file.Name()})
	if err := missAttachments(x); err != nil {
		t.Fatal(err)
	}
	return loop
}

// missAttachments makes an index miss the attachments since its last lookup. It learns of
// the detachments, those by other processes of the machine among them: a device that one
// of them has just detached may be the next that is attached.
func missAttachments(x *LoopIndex) error {
	changed, lost, err := x.events.changed()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, device := range changed {
		x.remove(device)
	}
	x.current = x.current && !lost
	return err
}

func TestLoopIndex_findsAttachmentsThatTheKernelDoesNotAnnounce(t *testing.T) {
	dir := nodetest.Dir(t)
	x := newIndex(t)
	x.silent = true
	file, other := nodetest.File(t, dir, "data", mebibyte), nodetest.File(t, dir, "other", mebibyte)
	wantLoops(t, x, file)
	loop := unannounced(t, x, file)
	wantLoops(t, x, file, loop)
	wantLoops(t, x, other)
	if err := errors.Join(loop.Close(), loop.Detach()); err != nil {
		t.Fatal(err)
	}
	again := unannounced(t, x, other) // on the same device, unless another process was faster
	wantLoops(t, x, other, again)
	wantLoops(t, x, file)
	if scans := x.started.Load(); scans != 1 {
		t.Errorf("all devices were read %d times; want once", scans)
	}
}

func TestLoopIndex_readsEverythingAfterALostEvent(t *testing.T) {
	dir := nodetest.Dir(t)
	x := newIndex(t)
	file := nodetest.File(t, dir, "data", mebibyte)
	wantLoops(t, x, file)
	loop := attach(t, LoopConfig{File: file, Path: file.Name()})
	// As many events as a socket holds, and then one more.
	for event, i := []byte("change"), 0; i < 2000; i++ {
		if err := os.WriteFile(provingDevice, event, 0); err != nil {
			t.Fatal(err)
		}
	}
	wantLoops(t, x, file, loop)
	if scans := x.started.Load(); scans != 2 {
		t.Errorf("all devices were read %d times; want twice", scans)
	}
}

func TestLoopIndex_worksWithoutEvents(t *testing.T) {
	dir := nodetest.Dir(t)
	x := &LoopIndex{}
	file := nodetest.File(t, dir, "data", mebibyte)
	wantLoops(t, x, file)
	wantLoops(t, x, file, attach(t, LoopConfig{File: file, Path: file.Name()}))
}

// A scan that began before a call arrived may lack what was attached in between.
func TestLoopIndex_callersShareAScanThatBeganAfterTheyCame(t *testing.T) {
	x := &LoopIndex{}
	before := x.started.Load()
	for range 3 { // those that waited for the lock during one scan
		if err := x.refresh(before); err != nil {
			t.Fatal(err)
		}
	}
	if scans := x.started.Load(); scans != 1 {
		t.Errorf("%d scans; want one", scans)
	}
	if err := x.refresh(x.started.Load()); err != nil {
		t.Fatal(err)
	}
	if scans := x.started.Load(); scans != 2 {
		t.Errorf("%d scans; want another one for a later caller", scans)
	}
}

func TestLoopIndex_findsAFileThatWasRenamed(t *testing.T) {
	dir := nodetest.Dir(t)
	x := newIndex(t)
	file := nodetest.File(t, dir, "data", mebibyte)
	loop := attach(t, LoopConfig{File: file, Path: file.Name()})
	wantLoops(t, x, file, loop)
	if err := os.Rename(file.Name(), filepath.Join(dir, "renamed")); err != nil {
		t.Fatal(err)
	}
	wantLoops(t, x, file, loop)
	if err := os.Remove(filepath.Join(dir, "renamed")); err != nil {
		t.Fatal(err)
	}
	wantLoops(t, x, file, loop)
}

func TestLoopOfEvent(t *testing.T) {
	for message, want := range map[string]string{
		"change@/devices/virtual/block/loop3\x00ACTION=change\x00": "loop3",
		"add@/devices/virtual/block/loop12":                        "loop12",
		"change@/devices/virtual/block/loop3/loop3p1\x00":          "",
		"change@/devices/virtual/bdi/7:3\x00":                      "",
		"change@/devices/virtual/queue/loop3\x00":                  "",
		"loop3": "",
		"":      "",
	} {
		if got, ok := loopOfEvent([]byte(message)); ok != (want != "") || ok && got != want {
			t.Errorf("%q: got %q, %t; want %q", message, got, ok, want)
		}
	}
}

// Four indexes and the kernel: one that loses events because its socket holds few, one
// that has none, and one of a kernel that does not announce attachments. After any
// attachment and detachment all find the same devices.
func TestLoopIndex_agreesWithTheKernel(t *testing.T) {
	dir := nodetest.Dir(t)
	names := []string{"a/x/data", "b/x/data", "a/y/data"} // two have one common name
	files := map[string]*os.File{}
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		files[name] = nodetest.File(t, dir, name, mebibyte)
	}
	checks := flag.Lookup("rapid.checks")
	if checks.Value.String() == checks.DefValue { // each attachment takes milliseconds
		_ = checks.Value.Set("25")
		defer func() { _ = checks.Value.Set(checks.DefValue) }()
	}
	rapid.Check(t, func(r *rapid.T) {
		indexes := map[string]*LoopIndex{"with events": newIndex(t), "that loses events": newIndex(t), "without events": {}, "of a silent kernel": newIndex(t)}
		silent := indexes["of a silent kernel"]
		silent.silent = true
		few := indexes["that loses events"].events.fd
		if err := unix.SetsockoptInt(few, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
			r.Fatal(err)
		}
		var loops []*Loop
		detach := func(i int) {
			if err := errors.Join(loops[i].Close(), loops[i].Detach()); err != nil {
				r.Fatal(err)
			}
			loops = slices.Delete(loops, i, i+1)
		}
		defer func() {
			for len(loops) > 0 {
				detach(0)
			}
		}()
		r.Repeat(map[string]func(*rapid.T){
			"attach": func(r *rapid.T) {
				file := files[rapid.SampledFrom(names).Draw(r, "file")]
				if _, err := silent.Of(file); err != nil {
					r.Fatal(err)
				}
				loop, err := AttachLoop(t.Context(), LoopConfig{
					File: file, Path: file.Name(), ReadOnly: rapid.Bool().Draw(r, "read-only"), AutoClear: rapid.Bool().Draw(r, "auto-clear"),
				})
				if err != nil {
					r.Fatal(err)
				}
				loops = append(loops, loop)
				if err := missAttachments(silent); err != nil {
					r.Fatal(err)
				}
			},
			"detach": func(r *rapid.T) {
				if len(loops) > 0 {
					detach(rapid.IntRange(0, len(loops)-1).Draw(r, "loop"))
				}
			},
			"compare": func(r *rapid.T) {
				for _, name := range names {
					want, err := LoopsOf(files[name])
					if err != nil {
						r.Fatal(err)
					}
					for kind, x := range indexes {
						got, err := x.Of(files[name])
						if err != nil || fmt.Sprint(indexesOf(got)) != fmt.Sprint(indexesOf(want)) {
							r.Fatalf("an index %s found %v, %v of %s; the kernel has %v", kind, indexesOf(got), err, name, indexesOf(want))
						}
					}
				}
			},
		})
	})
}
