package tartree

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func pack(t *testing.T, directory string, warn func(string)) ([]byte, error) {
	t.Helper()
	root, err := os.OpenRoot(directory)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	var out bytes.Buffer
	err = Pack{Name: "src", Warn: warn}.Tree(t.Context(), &out, root)
	return out.Bytes(), err
}

func write(t *testing.T, name, content string, mode fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o600), os.Chmod(name, mode)); err != nil {
		t.Fatal(err)
	}
}

func TestPack_andUnpackGiveTheSameTree(t *testing.T) {
	from := filepath.Join(t.TempDir(), "from")
	names := map[string]fs.FileMode{
		"plain": 0o640, "executable": 0o755, "sub/deep/file": 0o600, "sub/with space": 0o644, "not\xffutf8": 0o644,
		"long/" + strings.Repeat("n", 200) + "/" + strings.Repeat("m", 200): 0o644, "new\nline": 0o644,
	}
	at := time.Date(2020, 1, 2, 3, 4, 5, 123456789, time.UTC)
	for name, mode := range names {
		name := filepath.Join(from, name)
		write(t, name, "content of "+name, mode)
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(from, "read-only"), 0o700), os.WriteFile(filepath.Join(from, "read-only", "f"), nil, 0o400),
		os.Chmod(filepath.Join(from, "read-only"), 0o500), os.Symlink("plain", filepath.Join(from, "link")),
		os.Symlink("/nowhere", filepath.Join(from, "dangling"))); err != nil {
		t.Fatal(err)
	}
	data, err := pack(t, from, func(text string) { t.Error(text) })
	if err != nil {
		t.Fatal(err)
	}
	r := newRoom(t)
	if _, err := r.unpack(data, withLinks); err != nil {
		t.Fatal(err)
	}
	for name, mode := range names {
		to := filepath.Join(r.target, "src", name)
		content, err := os.ReadFile(to)
		info, _ := os.Stat(to)
		if err != nil || string(content) != "content of "+filepath.Join(from, name) || info.Mode() != mode || !info.ModTime().Equal(at) {
			t.Errorf("%q is %q, %v, %v", name, content, info, err)
		}
	}
	for name, want := range map[string]string{"link": "plain", "dangling": "/nowhere"} {
		if to, err := os.Readlink(filepath.Join(r.target, "src", name)); err != nil || to != want {
			t.Errorf("%s leads to %q, %v", name, to, err)
		}
	}
	if info, err := os.Stat(filepath.Join(r.target, "src", "read-only")); err != nil || info.Mode().Perm() != 0o500 {
		t.Errorf("the read-only directory is %v, %v", info, err)
	}
}

// The copy of a file with holes has holes.
func TestUnpack_keepsHoles(t *testing.T) {
	from := t.TempDir()
	file, err := os.Create(filepath.Join(from, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	const size = 64 << 20
	_, err = file.WriteAt([]byte("in the middle"), size/2)
	if err := errors.Join(err, file.Truncate(size), file.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := pack(t, from, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newRoom(t)
	if _, err := r.unpack(data, nil); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(r.target, "src", "sparse")
	var stat unix.Stat_t
	if err := unix.Stat(name, &stat); err != nil || stat.Size != size || stat.Blocks*512 > 1<<20 {
		t.Errorf("it has %d bytes in %d blocks, %v", stat.Size, stat.Blocks, err)
	}
	content, err := os.ReadFile(name)
	if err != nil || !bytes.Equal(content[size/2:size/2+13], []byte("in the middle")) {
		t.Errorf("the content differs: %v", err)
	}
}

// What is no file is not opened: a pipe would wait, and a device may do anything.
func TestPack_leavesOutWhatIsNoFile(t *testing.T) {
	from := t.TempDir()
	write(t, filepath.Join(from, "file"), "content", 0o644)
	if err := syscall.Mkfifo(filepath.Join(from, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	var warnings []string
	data, err := pack(t, from, func(text string) { warnings = append(warnings, text) })
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], `"src/pipe" is left out: it is a pipe`) {
		t.Errorf("got %v, %q", err, warnings)
	}
	r := newRoom(t)
	if _, err := r.unpack(data, nil); err != nil || r.names() != before+" target/src/file" {
		t.Errorf("got %v, %s", err, r.names())
	}
}

func TestPack_endsAtItsDepth(t *testing.T) {
	from := t.TempDir()
	deep := from
	for range maximumDepth {
		deep = filepath.Join(deep, "d")
	}
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := pack(t, from, nil); err == nil || !strings.Contains(err.Error(), "directories deep") {
		t.Errorf("got %v", err)
	}
}

// A file that becomes shorter while it is read cannot be complete; one that grows is packed
// to its earlier end.
func TestPack_filesThatChange(t *testing.T) {
	for size, want := range map[int64]string{blockSize: "became shorter", 4 * blockSize: ""} {
		name := filepath.Join(t.TempDir(), "file")
		write(t, name, strings.Repeat("x", 2*blockSize), 0o644)
		file, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		var out bytes.Buffer
		p := Pack{Name: "file", Progress: func(int64) {
			if err := os.Truncate(name, size); err != nil {
				t.Error(err)
			}
		}}
		err = p.File(t.Context(), &out, file)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
			continue
		}
		reader := tar.NewReader(&out)
		if header, next := reader.Next(); err != nil || next != nil || header.Size != 2*blockSize {
			t.Errorf("got %v, %v, %v", err, next, header)
		}
		if n, err := io.Copy(io.Discard, reader); err != nil || n != 2*blockSize {
			t.Errorf("read %d, %v", n, err)
		}
	}
}

func TestPack_endsWithItsContext(t *testing.T) {
	from := t.TempDir()
	write(t, filepath.Join(from, "file"), "content", 0o644)
	root, err := os.OpenRoot(from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (Pack{Name: "src"}).Tree(ctx, io.Discard, root); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
