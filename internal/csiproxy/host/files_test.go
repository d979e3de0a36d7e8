package host_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/api"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/host"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

const (
	kubelet = `C:\var\lib\kubelet`
	plugins = kubelet + `\plugins`
	pods    = kubelet + `\pods`
	// outside is a directory that no operation may touch, by any path.
	outside = `C:\precious`
)

// world is a simulated machine with a host on it, and things outside the roots
// that must survive.
type world struct {
	*windows.Machine
	t    testing.TB
	host *host.Host
	api  api.Host
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{Machine: windows.New(windows.Options{}), t: t}
	w.do(w.MkdirAll(outside + `\sub\deep`))
	w.do(w.WriteFile(outside+`\sub\data`, 1))
	w.do(w.WriteFile(outside+`\data`, 1))
	w.start()
	t.Cleanup(func() { w.host.Close() })
	return w
}

// start begins a new process.
func (w *world) start() {
	w.t.Helper()
	rules, err := paths.New(kubelet)
	w.do(err)
	w.host, err = host.New(host.Options{Machine: w.Calls(), Rules: rules})
	w.do(err)
	w.api = w.host.API()
}

func (w *world) do(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) mkdir(paths ...string) {
	w.t.Helper()
	for _, path := range paths {
		w.do(w.MkdirAll(path))
	}
}

// mount attaches a disk with a volume and mounts it, as another program would.
func (w *world) mount(path, serial string) (volume string) {
	w.t.Helper()
	calls := w.Calls()
	before, err := calls.Volumes.All()
	w.do(err)
	w.MustAddDisk(windows.DiskSpec{Serial: serial, Size: 1 << 30, Style: "data", FileSystem: "NTFS"})
	after, err := calls.Volumes.All()
	w.do(err)
	for _, name := range after {
		if !slices.Contains(before, name) {
			w.mkdir(path)
			w.do(calls.Volumes.SetMountPoint(path+`\`, name))
			return name
		}
	}
	w.t.Fatal("the disk has no volume")
	return ""
}

// tree describes everything below a path, without following links.
func (w *world) tree(path string) string {
	w.t.Helper()
	var out strings.Builder
	w.describe(&out, path, "")
	return out.String()
}

func (w *world) describe(out *strings.Builder, path, indent string) {
	info, err := w.Lstat(path)
	if err != nil {
		fmt.Fprintf(out, "%s%s %v\n", indent, path, err)
		return
	}
	fmt.Fprintf(out, "%s%s %x", indent, info.Name, info.Attributes)
	if info.IsReparse() {
		link, err := w.Readlink(path)
		w.do(err)
		fmt.Fprintf(out, " -> %s\n", link.Target())
		return
	}
	out.WriteString("\n")
	if !info.IsDir() {
		return
	}
	names, err := w.List(path)
	w.do(err)
	slices.Sort(names)
	for _, name := range names {
		w.describe(out, path+`\`+name, indent+" ")
	}
}

// mustBe compares an error with a sentinel, nil for none.
func mustBe(t testing.TB, err, want error) {
	t.Helper()
	if (want == nil && err != nil) || (want != nil && !errors.Is(err, want)) {
		t.Fatalf("the error is %v, not %v", err, want)
	}
}

// idle checks that an operation left no handle open but the root's.
func (w *world) idle() {
	w.t.Helper()
	if n := w.OpenHandles(); n != 1 {
		w.t.Errorf("%d handles are open, not the root's only", n)
	}
}

func ctx() context.Context { return context.Background() }

// badPaths has one of each kind that the rules refuse; all of them are in the
// tests of package paths.
var badPaths = []string{
	``, `x`, `C:x`, `\x`, `\\srv\share\x`, `\\?\C:\var\lib\kubelet\x`, `C:/var/lib/kubelet/x`, `C:\Windows\x`, kubelet + `-evil\x`,
	kubelet + `\..\x`, kubelet + `\x:y`, kubelet + `\NUL`, kubelet + `\x.`, kubelet + `\ABCDEF~1`,
}

// operations are all that take a path, by their names.
func operations(h api.Host) map[string]func(path string) error {
	second := func(_ any, err error) error { return err }
	return map[string]func(path string) error{
		"PathExists":       func(p string) error { return second(h.Filesystem.PathExists(ctx(), p)) },
		"Mkdir":            func(p string) error { return h.Filesystem.Mkdir(ctx(), p) },
		"Rmdir":            func(p string) error { return h.Filesystem.Rmdir(ctx(), p, false) },
		"Rmdir with force": func(p string) error { return h.Filesystem.Rmdir(ctx(), p, true) },
		"RmdirContents":    func(p string) error { return h.Filesystem.RmdirContents(ctx(), p) },
		"Link's link":      func(p string) error { return h.Filesystem.Link(ctx(), plugins, p) },
		"Link's source":    func(p string) error { return h.Filesystem.Link(ctx(), p, pods+`\new`) },
		"IsLink":           func(p string) error { return second(h.Filesystem.IsLink(ctx(), p)) },
		"Volumes.At":       func(p string) error { return second(h.Volumes.At(ctx(), p)) },
		"Volumes.Closest":  func(p string) error { return second(h.Volumes.Closest(ctx(), p)) },
		"Volumes.Mount":    func(p string) error { return h.Volumes.Mount(ctx(), someVolume, p) },
		"Volumes.Unmount":  func(p string) error { return h.Volumes.Unmount(ctx(), someVolume, p) },
	}
}

const someVolume = `\\?\Volume{12345678-1234-1234-1234-123456789abc}\`
