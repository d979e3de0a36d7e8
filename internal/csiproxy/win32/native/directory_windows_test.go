package native

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/winetest"
)

// open opens a new test directory as a root.
func open(t *testing.T) (win32.Directory, string) {
	t.Helper()
	path := winetest.Dir(t)
	root, err := files{}.OpenRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, root) })
	return root, path
}

func closeAll(t *testing.T, directories ...win32.Directory) {
	t.Helper()
	for _, d := range directories {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused checks that a call failed with a number.
func refused(t *testing.T, what string, err error, want win32.Errno) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, not %v", what, err, want)
	}
}

func TestDirectory_makesFindsListsAndRemovesEntries(t *testing.T) {
	root, path := open(t)
	must(t, root.Mkdir("sub"))
	must(t, os.WriteFile(filepath.Join(path, "File.txt"), []byte("x"), 0o644))

	refused(t, "mkdir again", root.Mkdir("SUB"), win32.ErrorAlreadyExists)
	refused(t, "mkdir over a file", root.Mkdir("file.txt"), win32.ErrorAlreadyExists)
	info, err := root.Stat("sub")
	must(t, err)
	if !info.IsDir() || info.IsReparse() || info.ReparseTag != 0 {
		t.Errorf("sub is %+v", info)
	}
	if info, err = root.Stat("FILE.TXT"); err != nil || info.IsDir() {
		t.Errorf("a file in other letters: %+v, %v", info, err)
	}
	_, err = root.Stat("none")
	refused(t, "stat of nothing", err, win32.ErrorFileNotFound)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not fs.ErrNotExist", err)
	}

	list, err := root.List()
	must(t, err)
	want := []win32.FileInfo{{Name: "File.txt"}, {Name: "sub"}}
	sortNames := cmpopts.SortSlices(func(a, b win32.FileInfo) bool { return a.Name < b.Name })
	if diff := cmp.Diff(want, list, sortNames, cmpopts.IgnoreFields(win32.FileInfo{}, "Attributes")); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}

	must(t, root.Remove("sub"))
	must(t, root.Remove("file.txt"))
	refused(t, "remove again", root.Remove("sub"), win32.ErrorFileNotFound)
	if list, err := root.List(); err != nil || len(list) != 0 {
		t.Errorf("after removal: %v, %v", list, err)
	}
}

func TestDirectory_opensOnlyDirectories(t *testing.T) {
	root, path := open(t)
	must(t, os.WriteFile(filepath.Join(path, "file"), nil, 0o644))
	must(t, root.Mkdir("a"))
	_, err := root.Open("file")
	refused(t, "a file", err, win32.ErrorDirectory)
	_, err = root.Open("none")
	refused(t, "nothing", err, win32.ErrorFileNotFound)

	a, err := root.Open("A")
	must(t, err)
	defer closeAll(t, a)
	must(t, a.Mkdir("b"))
	at, err := a.Path()
	must(t, err)
	if !strings.EqualFold(at, filepath.Join(path, "a")) {
		t.Errorf("path %q, not below %q", at, path)
	}
}

func TestDirectory_removesOnlyEmptyDirectories(t *testing.T) {
	root, path := open(t)
	must(t, os.MkdirAll(filepath.Join(path, "x", "y"), 0o755))
	err := root.Remove("x")
	refused(t, "what is not empty", err, win32.ErrorDirNotEmpty)
	if err == nil || !strings.Contains(err.Error(), "ERROR_DIR_NOT_EMPTY (145)") {
		t.Errorf("the text is %q", err)
	}
	if _, err := root.Stat("x"); err != nil {
		t.Errorf("after that: %v", err)
	}
}

func TestDirectory_takesOneNameOnly(t *testing.T) {
	root, _ := open(t)
	must(t, root.Mkdir("a"))
	for _, name := range []string{
		"", ".", "..", `a\b`, "a/b", `..\x`, "a:stream", "a::$INDEX_ALLOCATION", "*", "a?", "a\x00b", `"`, "<", "|",
	} {
		_, statErr := root.Stat(name)
		_, openErr := root.Open(name)
		_, mountErr := root.OpenMounted(name)
		_, reparseErr := root.Reparse(name)
		for call, err := range map[string]error{
			"stat": statErr, "open": openErr, "mounted": mountErr, "reparse": reparseErr,
			"mkdir": root.Mkdir(name), "remove": root.Remove(name), "symlink": root.Symlink(name, `C:\`),
		} {
			refused(t, call+" "+name, err, win32.ErrorInvalidName)
		}
	}
}

func TestDirectory_keepsTrailingDotsAndBlanksApart(t *testing.T) {
	root, _ := open(t)
	must(t, root.Mkdir("a"))
	// Win32 would take both for "a"; the kernel does not.
	for _, name := range []string{"a.", "a "} {
		_, err := root.Stat(name)
		refused(t, name, err, win32.ErrorFileNotFound)
	}
}

func TestDirectory_goesDeeperThanMaxPath(t *testing.T) {
	root, path := open(t)
	name := strings.Repeat("n", 100)
	held := []win32.Directory{root}
	for range 5 {
		parent := held[len(held)-1]
		must(t, parent.Mkdir(name))
		child, err := parent.Open(name)
		must(t, err)
		held = append(held, child)
	}
	at, err := held[5].Path()
	if errors.Is(err, win32.ErrorMoreData) {
		for i := 5; i > 0; i-- {
			closeAll(t, held[i])
			must(t, held[i-1].Remove(name))
		}
		effectMissing(t, "GetFinalPathNameByHandle of more than MAX_PATH characters", err)
	}
	must(t, err)
	if want := path + strings.Repeat(`\`+name, 5); !strings.EqualFold(at, want) {
		t.Errorf("path %q, not %q", at, want)
	}
	again, err := files{}.OpenRoot(at)
	must(t, err)
	closeAll(t, again)
	for i := 5; i > 0; i-- {
		closeAll(t, held[i])
		must(t, held[i-1].Remove(name))
	}
}

func TestDirectory_listsMoreThanABuffer(t *testing.T) {
	root, _ := open(t)
	var want []string
	for i := range 160 {
		name := strings.Repeat("x", 200) + string(rune('a'+i%26)) + string(rune('a'+i/26))
		must(t, root.Mkdir(name))
		want = append(want, name)
	}
	for range 2 { // the second list starts from the beginning
		list, err := root.List()
		must(t, err)
		var got []string
		for _, entry := range list {
			got = append(got, entry.Name)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("%d names, not %d", len(got), len(want))
		}
	}
}

// Neither an open directory nor one above it can be replaced or removed.
func TestDirectory_keepsWhatItOpened(t *testing.T) {
	root, path := open(t)
	must(t, root.Mkdir("a"))
	a, err := root.Open("a")
	must(t, err)
	must(t, a.Mkdir("b"))
	b, err := a.Open("b")
	must(t, err)
	for _, name := range []string{`a\b`, "a"} {
		from := filepath.Join(path, name)
		if err := os.Rename(from, from+"-moved"); err == nil {
			t.Errorf("%s was renamed while it was held", name)
			must(t, os.Rename(from+"-moved", from))
		}
	}
	if err := a.Remove("b"); !errors.Is(err, win32.ErrorSharingViolation) && !errors.Is(err, win32.ErrorAccessDenied) {
		t.Errorf("removal of an open directory: %v", err)
	}
	closeAll(t, b)
	must(t, a.Remove("b"))
	closeAll(t, a)
	must(t, root.Remove("a"))
}

func TestFiles_returnAttributes(t *testing.T) {
	_, path := open(t)
	attributes, err := files{}.Attributes(path)
	if err != nil || attributes&win32.FileAttributeDirectory == 0 {
		t.Errorf("%#x, %v", attributes, err)
	}
	_, err = files{}.Attributes(path + `\none`)
	refused(t, "nothing", err, win32.ErrorFileNotFound)
	_, err = files{}.Attributes(path + `\none\none`)
	refused(t, "below nothing", err, win32.ErrorPathNotFound)
	_, err = files{}.OpenRoot(path + `\none`)
	refused(t, "root", err, win32.ErrorFileNotFound)
	must(t, os.WriteFile(path+`\file`, nil, 0o644))
	_, err = files{}.OpenRoot(path + `\file`)
	refused(t, "a file as root", err, win32.ErrorDirectory)
}
