package tartree

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// stream makes a tar stream; the last entry has the end mark behind it.
func stream(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, header := range entries {
		content := header.Uname // the content of a file, for short
		header.Uname = ""
		if header.Mode == 0 {
			header.Mode = 0o644
		}
		header.Size = int64(len(content))
		if err := w.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func file(name, content string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Uname: content}
}

func link(kind byte, name, to string) tar.Header {
	return tar.Header{Typeflag: kind, Name: name, Linkname: to}
}

func dir(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755} }

// room is a target directory next to something that nobody may touch.
type room struct {
	t        *testing.T
	top      string
	target   string
	warnings []string
}

func newRoom(t *testing.T) *room {
	t.Helper()
	r := &room{t: t, top: t.TempDir()}
	r.target = filepath.Join(r.top, "target")
	for name, content := range map[string]string{"outside/precious": "precious", "target/kept": "kept"} {
		name = filepath.Join(r.top, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (r *room) unpack(data []byte, change func(*Unpack)) (Done, error) {
	r.t.Helper()
	root, err := os.OpenRoot(r.target)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	u := Unpack{Name: "src", As: "src", Preserve: true, Warn: func(text string) { r.warnings = append(r.warnings, text) }}
	if change != nil {
		change(&u)
	}
	return u.Run(r.t.Context(), bytes.NewReader(data), root)
}

// names lists what is below the top directory.
func (r *room) names() string {
	r.t.Helper()
	var names []string
	err := fs.WalkDir(os.DirFS(r.top), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() || strings.Contains(path, temporaryPrefix) {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.Join(names, " ")
}

func (r *room) untouched() {
	r.t.Helper()
	data, err := os.ReadFile(filepath.Join(r.top, "outside", "precious"))
	if err != nil || string(data) != "precious" {
		r.t.Errorf("what is outside of the target has changed: %q, %v", data, err)
	}
	if info, err := os.Stat(filepath.Join(r.top, "outside", "precious")); err != nil || info.Mode().Perm() != 0o644 {
		r.t.Errorf("what is outside of the target has other permissions: %v, %v", info, err)
	}
}

const before = "outside/precious target/kept"

func withLinks(u *Unpack) { u.Links = true }

// A stream of an attacker writes nothing outside of the target, and nothing stays of it.
func TestUnpack_leadsNowhereElse(t *testing.T) {
	for name, test := range map[string]struct {
		entries []tar.Header
		want    string
	}{
		// CVE-2019-11246 and CVE-2019-11251 of kubectl cp: names that leave the target.
		"a parent":                 {[]tar.Header{file("../outside/precious", "evil")}, "leads out"},
		"a parent further down":    {[]tar.Header{dir("src"), file("src/../../outside/precious", "evil")}, "leads out"},
		"a parent behind the name": {[]tar.Header{file("src/..", "evil")}, "leads out"},
		"an absolute name":         {[]tar.Header{file("/etc/evil", "evil")}, "leads out"},
		"another top":              {[]tar.Header{file("kept", "evil")}, `is not below "src"`},
		"a name that begins alike": {[]tar.Header{file("srcevil", "evil")}, `is not below "src"`},
		"no name":                  {[]tar.Header{{Typeflag: tar.TypeReg, Name: "", Format: tar.FormatUSTAR}}, "no name"},
		"a deep name":              {[]tar.Header{file("src/"+strings.Repeat("a/", maximumDepth)+"f", "evil")}, "directories deep"},
		"a long name":              {[]tar.Header{file("src/"+strings.Repeat("a", maximumPath), "evil")}, "at most"},
		// CVE-2018-1002100, CVE-2019-1002101 and CVE-2019-11249 of kubectl cp: a link, and a
		// file that is written through it.
		"an absolute link":        {[]tar.Header{dir("src"), link(tar.TypeSymlink, "src/l", "/etc"), file("src/l/evil", "evil")}, "escapes"},
		"a relative link":         {[]tar.Header{dir("src"), link(tar.TypeSymlink, "src/l", "../../outside"), file("src/l/precious", "evil")}, "escapes"},
		"links one after another": {[]tar.Header{dir("src"), dir("src/d"), link(tar.TypeSymlink, "src/up", "d/../.."), link(tar.TypeSymlink, "src/upper", "up/../outside"), file("src/upper/precious", "evil")}, "escapes"},
		"the top is a link":       {[]tar.Header{link(tar.TypeSymlink, "src", "../outside"), file("src/precious", "evil")}, "escapes"},
		"a directory at a link":   {[]tar.Header{dir("src"), link(tar.TypeSymlink, "src/l", "../../outside"), dir("src/l")}, "escapes"},
		"a hard link to outside":  {[]tar.Header{dir("src"), link(tar.TypeLink, "src/h", "../outside/precious")}, "leads out"},
		"a hard link to a root":   {[]tar.Header{dir("src"), link(tar.TypeLink, "src/h", "/etc/passwd")}, "leads out"},
		"a hard link through one": {[]tar.Header{dir("src"), link(tar.TypeSymlink, "src/l", "../../outside"), link(tar.TypeLink, "src/h", "src/l/precious")}, "escapes"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t)
			_, err := r.unpack(stream(t, test.entries...), withLinks)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if got := r.names(); got != before {
				t.Errorf("afterwards there are %s", got)
			}
			r.untouched()
		})
	}
}

// A link that is replaced by a file is not written through, whoever made it.
func TestUnpack_replacesALinkInsteadOfFollowingIt(t *testing.T) {
	r := newRoom(t)
	if err := errors.Join(os.Symlink("../outside/precious", filepath.Join(r.target, "src")),
		os.Link(filepath.Join(r.top, "outside", "precious"), filepath.Join(r.target, "hard"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"src", "hard"} {
		if _, err := r.unpack(stream(t, file(name, "new")), func(u *Unpack) { u.Name, u.As = name, name }); err != nil {
			t.Error(err)
		}
		if data, err := os.ReadFile(filepath.Join(r.target, name)); err != nil || string(data) != "new" {
			t.Errorf("%s is %q, %v", name, data, err)
		}
	}
	r.untouched()
}

// Links of a container are not made on this machine: they are left out, with a warning each.
func TestUnpack_leavesLinksAndDevicesOut(t *testing.T) {
	r := newRoom(t)
	done, err := r.unpack(stream(t, dir("src"), link(tar.TypeSymlink, "src/l", "/etc/passwd"), link(tar.TypeLink, "src/h", "src/f"),
		tar.Header{Typeflag: tar.TypeChar, Name: "src/null", Devmajor: 1, Devminor: 3}, tar.Header{Typeflag: tar.TypeBlock, Name: "src/disk", Devmajor: 8},
		tar.Header{Typeflag: tar.TypeFifo, Name: "src/pipe"}, file("src/f", "content")), nil)
	if err != nil || done.Files != 1 || r.names() != before+" target/src/f" {
		t.Errorf("got %+v, %v, %s", done, err, r.names())
	}
	all := strings.Join(r.warnings, "\n")
	for _, want := range []string{`"src/l" is left out: it is a link to "/etc/passwd"`, `"src/h" is`, `"src/null" is left out: it is a device`, `"src/disk" is`, `it is a pipe`} {
		if !strings.Contains(all, want) {
			t.Errorf("no warning has %s: %s", want, all)
		}
	}
}

func TestUnpack_dropsTheBitsThatGiveRights(t *testing.T) {
	r := newRoom(t)
	setuid := file("src/f", "content")
	setuid.Mode = 0o7755
	if _, err := r.unpack(stream(t, tar.Header{Typeflag: tar.TypeDir, Name: "src", Mode: 0o7500}, setuid), nil); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"src": fs.ModeDir | 0o500, "src/f": 0o755} {
		if info, err := os.Stat(filepath.Join(r.target, name)); err != nil || info.Mode() != want {
			t.Errorf("%s has %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
}

// Each way to lose the end of a stream is an error, and nothing stays of the copy.
func TestUnpack_aCopyIsCompleteOrAbsent(t *testing.T) {
	whole := stream(t, dir("src"), file("src/a", strings.Repeat("a", 1000)), file("src/b", "b"))
	for length := range len(whole) - 511 { // the last blocks are the end mark
		if length%64 != 0 && length%512 > 1 {
			continue
		}
		r := newRoom(t)
		if _, err := r.unpack(whole[:length], nil); !errors.Is(err, ErrTruncated) {
			t.Errorf("after %d of %d bytes: %v", length, len(whole), err)
		}
		if got := r.names(); got != before {
			t.Errorf("after %d bytes there are %s", length, got)
		}
	}
	r := newRoom(t)
	if done, err := r.unpack(whole, nil); err != nil || done.Files != 2 {
		t.Errorf("got %+v, %v", done, err)
	}
}

// In a directory that exists, the files that were complete stay, and the error says so.
func TestUnpack_intoADirectoryThatExists(t *testing.T) {
	r := newRoom(t)
	inPlace := func(u *Unpack) { u.As = "." }
	whole := stream(t, dir("src"), file("src/kept", "new"), file("src/sub/b", "b"))
	done, err := r.unpack(whole[:len(whole)-1024-512], inPlace)
	if !errors.Is(err, ErrTruncated) || !done.Kept || done.Files != 1 || r.names() != before {
		t.Errorf("got %+v, %v, %s", done, err, r.names())
	}
	if done, err = r.unpack(whole, inPlace); err != nil || done.Files != 2 || r.names() != before+" target/sub/b" {
		t.Errorf("got %+v, %v, %s", done, err, r.names())
	}
	if data, _ := os.ReadFile(filepath.Join(r.target, "kept")); string(data) != "new" {
		t.Errorf("the file is %q", data)
	}
}

func TestUnpack_saysWhatIsInTheWay(t *testing.T) {
	r := newRoom(t)
	if err := os.MkdirAll(filepath.Join(r.target, "src", "f", "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	for want, entries := range map[string][]tar.Header{
		"file exists":               {file("src/f", "x")},
		"there is a file, and not":  {dir("kept")},
		"mkdirat kept: file exists": {file("kept/f", "x")},
	} {
		_, err := r.unpack(stream(t, entries...), func(u *Unpack) { u.Name, u.As = Whole, "." })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if got := r.names(); got != before {
		t.Errorf("afterwards there are %s", got)
	}
}

func TestUnpack_endsWithItsContext(t *testing.T) {
	r := newRoom(t)
	ctx, cancel := context.WithCancel(t.Context())
	root, err := os.OpenRoot(r.target)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	u := Unpack{Name: "src", As: "src", Progress: func(int64) { cancel() }}
	_, err = u.Run(ctx, bytes.NewReader(stream(t, file("src", strings.Repeat("x", 3*blockSize)))), root)
	if !errors.Is(err, context.Canceled) || r.names() != before {
		t.Errorf("got %v, %s", err, r.names())
	}
}

// A stream that GNU tar would make: no entries for directories, hard links, padding.
func TestUnpack_takesAnArchive(t *testing.T) {
	r := newRoom(t)
	data := append(stream(t, file("./a/b/f", "content"), link(tar.TypeLink, "./a/h", "./a/b/f"), link(tar.TypeLink, "./a/h", "./a/b/f"),
		link(tar.TypeSymlink, "a/s", "b/f")), make([]byte, 10<<10)...)
	done, err := r.unpack(data, func(u *Unpack) { u.Name, u.As, u.Links = Whole, ".", true })
	if err != nil || r.names() != "outside/precious target/a/b/f target/a/h target/a/s target/kept" {
		t.Fatalf("got %+v, %v, %s", done, err, r.names())
	}
	for _, name := range []string{"a/h", "a/s"} {
		if data, err := os.ReadFile(filepath.Join(r.target, name)); err != nil || string(data) != "content" {
			t.Errorf("%s is %q, %v", name, data, err)
		}
	}
	if _, err := r.unpack(nil, nil); !errors.Is(err, ErrTruncated) {
		t.Errorf("an empty input: %v", err)
	}
	if _, err := r.unpack(stream(t), nil); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty stream: %v", err)
	}
}

func TestUnpack_withoutPreserveHasTheDefaults(t *testing.T) {
	r := newRoom(t)
	f := file("src/f", "content")
	f.Mode, f.ModTime = 0o600, time.Unix(1, 0)
	if _, err := r.unpack(stream(t, tar.Header{Typeflag: tar.TypeDir, Name: "src", Mode: 0o700}, f), func(u *Unpack) { u.Preserve = false }); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(r.target, "src", "f"))
	if err != nil || info.Mode().Perm()&0o044 == 0 || info.ModTime().Year() < 2000 {
		t.Errorf("got %v, %v", info, err)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte("not a tar stream"))
	f.Add(make([]byte, 1024))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := newRoom(t)
		_, err := r.unpack(data, withLinks)
		names := strings.Fields(r.names())
		if err != nil && strings.Join(names, " ") != before {
			t.Errorf("after %v there are %v", err, names)
		}
		if slices.ContainsFunc(names, func(name string) bool {
			return name != "outside/precious" && name != "target/kept" && name != "target/src" && !strings.HasPrefix(name, "target/src/")
		}) {
			t.Errorf("there are %v", names)
		}
		r.untouched()
	})
}
