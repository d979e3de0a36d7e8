package workload

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-csi/holdfast/internal/tartree"
)

// copyRoom is a container with a volume at /holdfast-copy, and a directory of this machine.
type copyRoom struct {
	t         *testing.T
	shim      Shim
	container Container
	volume    string // as this machine sees it
	here      string
	warnings  string
}

const copyPoint = "/holdfast-copy"

func newCopyRoom(t *testing.T, change func(*Container)) *copyRoom {
	t.Helper()
	r := &copyRoom{t: t, shim: testShim(t), volume: t.TempDir(), here: t.TempDir()}
	r.container = shell(t, "sleep 300", Mount{Source: r.volume, Target: copyPoint})
	if change != nil {
		change(&r.container)
	}
	if err := os.Chmod(r.volume, 0o777); err != nil {
		t.Fatal(err)
	}
	start(t, r.shim, r.container)
	return r
}

func (r *copyRoom) write(name, content string) string {
	r.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o644)); err != nil {
		r.t.Fatal(err)
	}
	return name
}

// down copies from the container into the room's own directory.
func (r *copyRoom) down(path, name string) error {
	r.t.Helper()
	root, err := os.OpenRoot(r.here)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	read, write := io.Pipe()
	copied := make(chan error, 1)
	var errs bytes.Buffer
	go func() {
		err := r.shim.Copy(r.t.Context(), r.container, Copy{Path: path, Name: name}, Session{Stdout: write, Stderr: &errs})
		_ = write.CloseWithError(err)
		copied <- err
	}()
	_, err = tartree.Unpack{Name: name, As: "got", Preserve: true, Warn: func(text string) { r.warnings += text + "\n" }}.Run(r.t.Context(), read, root)
	_ = read.CloseWithError(err)
	if failed := <-copied; failed != nil {
		err = failed
	}
	r.warnings += errs.String()
	return err
}

// up copies the file or directory of this machine into the container.
func (r *copyRoom) up(from, path string) error {
	r.t.Helper()
	var data bytes.Buffer
	pack := tartree.Pack{Name: filepath.Base(from), Warn: func(text string) { r.t.Error(text) }}
	if info, err := os.Stat(from); err == nil && info.IsDir() {
		root, err := os.OpenRoot(from)
		if err != nil {
			r.t.Fatal(err)
		}
		defer func() { _ = root.Close() }()
		if err := pack.Tree(r.t.Context(), &data, root); err != nil {
			r.t.Fatal(err)
		}
	} else {
		file, err := os.Open(from)
		if err != nil {
			r.t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		if err := pack.File(r.t.Context(), &data, file); err != nil {
			r.t.Fatal(err)
		}
	}
	return r.upload(path, pack.Name, &data)
}

func (r *copyRoom) upload(path, name string, stream io.Reader) error {
	var errs bytes.Buffer
	err := r.shim.Copy(r.t.Context(), r.container, Copy{Path: path, Name: name, Upload: true}, Session{Stdin: stream, Stdout: io.Discard, Stderr: &errs})
	r.warnings += errs.String()
	return err
}

func (r *copyRoom) has(name, want string) {
	r.t.Helper()
	if data, err := os.ReadFile(name); err != nil || string(data) != want {
		r.t.Errorf("%s is %q, %v; want %q", name, data, err, want)
	}
}

func (r *copyRoom) refused(err error, want string) {
	r.t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		r.t.Errorf("got %v, want %s", err, want)
	}
	if left, _ := filepath.Glob(filepath.Join(r.here, "*")); len(left) > 0 {
		r.t.Errorf("on this machine there is %v", left)
	}
	for _, pattern := range []string{".holdfast-cp-*", "*/.holdfast-cp-*"} {
		if left, _ := filepath.Glob(filepath.Join(r.volume, pattern)); len(left) > 0 {
			r.t.Errorf("in the container there is %v", left)
		}
	}
}

func TestCopy_filesAndDirectoriesBothWays(t *testing.T) {
	r := newCopyRoom(t, func(c *Container) { c.Directory = copyPoint })
	r.write(filepath.Join(r.volume, "data/sub/file"), "from the container")
	for path, file := range map[string]string{copyPoint + "/data": "got/sub/file", "data/sub/file": "got", "data/../data/sub/": "got/file"} {
		if err := r.down(path, "top"); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		r.has(filepath.Join(r.here, file), "from the container")
		if err := os.RemoveAll(filepath.Join(r.here, "got")); err != nil {
			t.Fatal(err)
		}
	}
	tree := t.TempDir()
	from := filepath.Join(tree, "conf")
	r.write(filepath.Join(from, "sub/file"), "from here")
	if err := os.Symlink("sub/file", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ from, path, file string }{
		{from, copyPoint, "conf/link"}, {from, copyPoint + "/new", "new/link"}, {from, copyPoint + "/new/", "new/conf/link"},
		{from + "/sub/file", copyPoint + "/one", "one"}, {from + "/sub/file", "one", "one"}, {from + "/sub/file", "new", "new/file"},
	} {
		if err := r.up(test.from, test.path); err != nil {
			t.Errorf("%s to %s: %v", test.from, test.path, err)
		}
		r.has(filepath.Join(r.volume, test.file), "from here")
	}
	r.refused(r.down(copyPoint+"/none", "none"), `open "/holdfast-copy/none" in the container: no such file`)
	r.refused(r.up(from, copyPoint+"/none/new"), `open "/holdfast-copy/none/" in the container: no such file`)
	r.refused(r.up(from, copyPoint+"/one/"), `not a directory`)
	r.refused(r.down("/dev/null", "null"), "is a device")
}

// A path, and the links in it, mean to a copy what they mean in the container, in both
// directions; they never lead to what this machine has at that path.
func TestCopy_linksStayInTheContainer(t *testing.T) {
	secret := t.TempDir()
	r := newCopyRoom(t, func(c *Container) {
		// What the container sees at this path is another directory than the machine's.
		c.Mounts = append(c.Mounts, Mount{Source: t.TempDir(), Target: secret})
	})
	r.write(filepath.Join(secret, "file"), "of this machine")
	deep := strings.Repeat("../", 40)
	for name, to := range map[string]string{
		"absolute": secret, "relative": deep + secret[1:], "through": "absolute", "root": "/proc/1/root" + secret, "own": "/proc/self/root" + secret,
		"descriptor": fmt.Sprintf("/proc/self/fd/%d", 5), "dangling": filepath.Join(secret, "new"),
	} {
		if err := os.Symlink(to, filepath.Join(r.volume, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{secret, copyPoint + "/absolute", copyPoint + "/relative", copyPoint + "/through", copyPoint + "/../.." + secret} {
		r.refused(r.down(path+"/file", "file"), "no such file")
		if err := r.up(r.write(filepath.Join(t.TempDir(), "evil"), "evil"), path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, name := range []string{"root", "own", "descriptor"} {
		for _, err := range []error{r.down(copyPoint+"/"+name+"/file", "file"), r.up(r.write(filepath.Join(t.TempDir(), "evil"), "evil"), copyPoint+"/"+name+"/evil")} {
			if err == nil {
				t.Errorf("%s led somewhere", name)
			}
		}
	}
	if err := r.up(r.write(filepath.Join(t.TempDir(), "f"), "in its place"), copyPoint+"/dangling"); err != nil {
		t.Error(err)
	}
	r.has(filepath.Join(r.volume, "dangling"), "in its place")
	r.has(filepath.Join(secret, "file"), "of this machine")
	if names, err := filepath.Glob(filepath.Join(secret, "*")); err != nil || len(names) != 1 {
		t.Errorf("this machine has %v, %v", names, err)
	}
	// Inside of a directory, a link is a link: it is not followed, and not made here.
	if err := r.down(copyPoint, "top"); err != nil || !strings.Contains(r.warnings, `"top/absolute" is left out: it is a link to`) {
		t.Errorf("got %v, %s", err, r.warnings)
	}
	if names, err := filepath.Glob(filepath.Join(r.here, "got", "*")); err != nil || len(names) != 1 {
		t.Errorf("there are %v, %v", names, err)
	}
}

// A process of the container that exchanges a directory for a link all the time leads the
// copy to one of the two inside of the container, or to an error, and to nothing else.
func TestCopy_aLinkThatAppearsMeanwhile(t *testing.T) {
	outside := t.TempDir()
	r := newCopyRoom(t, func(c *Container) {
		c.Mounts = append(c.Mounts, Mount{Source: t.TempDir(), Target: outside}) // in there it is another directory
	})
	r.write(filepath.Join(outside, "file"), "of this machine")
	r.write(filepath.Join(r.volume, "dir/file"), "of the container")
	link := filepath.Join(r.volume, "link")
	if err := os.Symlink(deepTo(outside), link); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	swapped := make(chan struct{})
	go func() {
		defer close(swapped)
		for ctx.Err() == nil {
			_ = unix.Renameat2(unix.AT_FDCWD, filepath.Join(r.volume, "dir"), unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
		}
	}()
	from := r.write(filepath.Join(t.TempDir(), "up"), "uploaded")
	for range 10 {
		_ = r.down(copyPoint, "top") // or an error
		if data, err := os.ReadFile(filepath.Join(r.here, "got/dir/file")); err == nil && string(data) != "of the container" {
			t.Errorf("copied %q", data)
		}
		if err := os.RemoveAll(filepath.Join(r.here, "got")); err != nil {
			t.Fatal(err)
		}
		_ = r.up(filepath.Dir(from), copyPoint+"/dir") // or an error
	}
	cancel()
	<-swapped
	if names, err := filepath.Glob(filepath.Join(outside, "*")); err != nil || len(names) != 1 {
		t.Errorf("this machine has %v, %v", names, err)
	}
}

// deepTo is a relative link to a directory of this machine.
func deepTo(directory string) string { return strings.Repeat("../", 40) + directory[1:] }

// A copy may what the container's user may, and no more.
func TestCopy_hasTheRightsOfTheContainer(t *testing.T) {
	secret := t.TempDir()
	r := newCopyRoom(t, func(c *Container) { c.UID, c.GID, c.Groups, c.DropAll = 1234, 4321, []uint32{77}, true })
	if err := os.Chmod(r.write(filepath.Join(r.volume, "private"), "private"), 0o600); err != nil {
		t.Fatal(err)
	}
	shared := r.write(filepath.Join(r.volume, "shared"), "shared")
	if err := errors.Join(os.Chown(shared, 0, 77), os.Chmod(shared, 0o640), os.Chmod(secret, 0o700)); err != nil {
		t.Fatal(err)
	}
	r.refused(r.down(copyPoint+"/private", "private"), "permission denied")
	r.refused(r.down("/etc/shadow", "shadow"), "permission denied")
	r.refused(r.down(copyPoint, "top"), `open "top/private"`)
	from := r.write(filepath.Join(t.TempDir(), "up"), "uploaded")
	r.refused(r.up(from, "/etc/holdfast-evil"), "permission denied")
	if err := r.down(copyPoint+"/shared", "shared"); err != nil {
		t.Error(err)
	}
	r.has(filepath.Join(r.here, "got"), "shared")
	if err := os.Chmod(from, 0o4755); err != nil {
		t.Fatal(err)
	}
	if err := r.up(from, copyPoint+"/up"); err != nil {
		t.Fatal(err)
	}
	var stat unix.Stat_t
	if err := unix.Stat(filepath.Join(r.volume, "up"), &stat); err != nil || stat.Uid != 1234 || stat.Gid != 4321 || stat.Mode&0o7777 != 0o755 {
		t.Errorf("the new file has %+v, %v", stat, err)
	}
}

// The root of the container has the capabilities of the container: without any, a mode
// stops it as it stops another user.
func TestCopy_rootWithoutCapabilities(t *testing.T) {
	r := newCopyRoom(t, func(c *Container) { c.DropAll = true })
	private := r.write(filepath.Join(r.volume, "private"), "private")
	if err := errors.Join(os.Chmod(private, 0o600), os.Chown(private, 1234, 1234)); err != nil {
		t.Fatal(err)
	}
	r.refused(r.down(copyPoint+"/private", "private"), "permission denied")
	ordinary := newCopyRoom(t, nil)
	private = ordinary.write(filepath.Join(ordinary.volume, "private"), "private")
	if err := errors.Join(os.Chmod(private, 0o600), os.Chown(private, 1234, 1234)); err != nil {
		t.Fatal(err)
	}
	if err := ordinary.down(copyPoint+"/private", "private"); err != nil {
		t.Errorf("with the capabilities that a container has: %v", err)
	}
}

func TestCopy_readOnlyStaysReadOnly(t *testing.T) {
	r := newCopyRoom(t, func(c *Container) { c.ReadOnlyRoot, c.Mounts[0].ReadOnly = true, true })
	from := r.write(filepath.Join(t.TempDir(), "up"), "uploaded")
	for _, path := range []string{copyPoint + "/up", "/holdfast-evil"} {
		r.refused(r.up(from, path), "read-only file system")
	}
}

// The processes of the container do not see the copy's: with root's rights and every
// capability, they could otherwise reach this program's file.
func TestCopy_isNotAmongTheProcessesOfTheContainer(t *testing.T) {
	r := newCopyRoom(t, func(c *Container) { c.Privileged = true })
	read, write := io.Pipe()
	copied := make(chan error, 1)
	go func() { copied <- r.upload(copyPoint+"/f", "f", read) }()
	var data bytes.Buffer
	w := tar.NewWriter(&data)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "f", Size: 2 << 20}); err != nil {
		t.Fatal(err)
	}
	data.Write(bytes.Repeat([]byte("x"), 1<<20))
	if _, err := write.Write(data.Bytes()); err != nil { // more than a pipe has: the copy reads
		t.Fatal(err)
	}
	_, stdout, stderr := inContainer(t, r.shim, command(r.container, `for p in /proc/[0-9]*; do echo $(basename $p) $(tr '\0' ' ' < $p/cmdline); done; ls `+copyPoint+`/.holdfast-cp-*`), "")
	seen := 0
	for line := range strings.Lines(stdout) {
		if strings.Contains(line, ChildCommand) {
			seen++
		}
	}
	if seen != 1 || !strings.Contains(stdout, ".holdfast-cp-") {
		t.Errorf("it sees %d processes of this program besides its own init: %s, %s", seen-1, stdout, stderr)
	}
	_ = write.Close()
	r.refused(<-copied, "the stream ended before its end")
}

// A full disk is an error, and nothing stays of the copy.
func TestCopy_aFullDisk(t *testing.T) {
	small := t.TempDir()
	if err := unix.Mount("holdfast", small, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(small, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	r := newCopyRoom(t, func(c *Container) { c.Mounts = append(c.Mounts, Mount{Source: small, Target: "/holdfast-small"}) })
	tree := t.TempDir()
	r.write(filepath.Join(tree, "a/small"), "small")
	r.write(filepath.Join(tree, "b"), strings.Repeat("x", 2<<20))
	for path, want := range map[string]string{"/holdfast-small/new": "no space left", "/holdfast-small": "no space left"} {
		r.refused(r.up(tree, path), want)
	}
	if left, err := filepath.Glob(filepath.Join(small, "*")); err != nil || len(left) != 0 {
		t.Errorf("there is %v, %v", left, err)
	}
	if err := os.Mkdir(filepath.Join(small, filepath.Base(tree)), 0o755); err != nil {
		t.Fatal(err)
	}
	r.refused(r.up(tree, "/holdfast-small"), "no space left")
	if left, err := filepath.Glob(filepath.Join(small, filepath.Base(tree), ".holdfast*")); err != nil || len(left) != 0 {
		t.Errorf("there is %v, %v", left, err)
	}
}

func TestCopy_endsWithItsCaller(t *testing.T) {
	r := newCopyRoom(t, nil)
	r.write(filepath.Join(r.volume, "large"), strings.Repeat("x", 8<<20))
	for _, upload := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		read, write := io.Pipe()
		session := Session{Stdin: read, Stdout: cancelling{cancel}, Stderr: io.Discard}
		if upload {
			go func() {
				header := make([]byte, 512)
				_, _ = write.Write(header[:100])
				cancel()
				_ = write.Close() // as the host does it when its client is gone
			}()
		}
		err := r.shim.Copy(ctx, r.container, Copy{Path: copyPoint + "/large", Name: "large", Upload: upload}, session)
		if err == nil {
			t.Errorf("upload %v: no error", upload)
		}
		_ = read.Close()
		cancel()
	}
	r.has(filepath.Join(r.volume, "large"), strings.Repeat("x", 8<<20))
	if left, _ := filepath.Glob(filepath.Join(r.volume, ".holdfast*")); len(left) != 0 {
		t.Errorf("there is %v", left)
	}
}

// cancelling ends the copy with its first output, and takes no more.
type cancelling struct{ cancel func() }

func (c cancelling) Write([]byte) (int, error) {
	c.cancel()
	return 0, syscall.EPIPE
}

func TestCopy_needsARunningContainer(t *testing.T) {
	shim := testShim(t)
	container := shell(t, "true")
	_, process := start(t, shim, container)
	ended(t, shim, process, ReasonUnknown)
	if err := shim.Copy(t.Context(), container, Copy{Path: "/", Name: "."}, Session{Stdout: io.Discard, Stderr: io.Discard}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("got %v", err)
	}
}
