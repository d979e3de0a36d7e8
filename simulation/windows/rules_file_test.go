package windows_test

import (
	"slices"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/win32"
	"github.com/holdfast-csi/holdfast/simulation/windows"
)

func openRoot(t *testing.T, calls win32.Machine, path string) win32.Directory {
	t.Helper()
	d, err := calls.Files.OpenRoot(path)
	must(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// Naming files: Win32 paths know no case, slashes, empty and dot components, dots
// and blanks at the end; \\?\ takes all of them literally. Short names open the
// same file.
func TestPaths_areThoseOfWin32(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	must(t, m.MkdirAll(`C:\Program Files\x`))
	must(t, m.WriteFile(`C:\Program Files\x\long name.text`, 1))
	d := openRoot(t, calls, `C:\Program Files\x`)
	must(t, d.Mkdir("dot.")) // by handle: exact
	must(t, d.Mkdir("dot.b"))
	for path, want := range map[string]win32.Errno{
		`c:\PROGRAM files\X`:                 0,
		`C:/Program Files/x`:                 0,
		`C:\\Program Files\.\y\..\x`:         0,
		`C:\Program Files\x. . `:             0,
		`C:\Program Files.\x`:                0,
		`C:\PROGRA~1\x\LONGNA~1.TEX`:         0,
		`\Program Files\x`:                   0,
		`\\?\C:\Program Files\x`:             0,
		`\\?\C:\Program Files\x.`:            win32.ErrorFileNotFound,
		`\\?\C:\Program Files.\x`:            win32.ErrorPathNotFound,
		`\\?\C:/Program Files/x`:             win32.ErrorPathNotFound,
		`\\?\C:\Program Files\.\x`:           win32.ErrorInvalidName,
		`C:\Program Files\x\dot.`:            win32.ErrorFileNotFound,
		`\\?\C:\Program Files\x\dot.`:        0,
		`C:\Program Files\x\dot.b`:           0,
		`C:\Program Files\missing\x`:         win32.ErrorPathNotFound,
		`C:\Program Files\x\long name.text\`: 0,
		`C:\Program Files\x:stream`:          win32.ErrorInvalidName,
		`Z:\x`:                               win32.ErrorPathNotFound,
		`\\.\C:\x`:                           win32.ErrorInvalidName,
		"C:\\x\x00y":                         win32.ErrorInvalidName,
		``:                                   win32.ErrorInvalidName,
		"C:\\Program Files\\x\\\u212Aelvin":  win32.ErrorFileNotFound,
	} {
		_, err := calls.Files.Attributes(path)
		if want == 0 {
			if err != nil {
				t.Errorf("%q: %v", path, err)
			}
			continue
		}
		refused(t, path, err, want)
	}
}

// NTFS compares upper-cased units: the Kelvin sign is not the letter k.
func TestNames_areComparedInUpperCase(t *testing.T) {
	_, calls := machine(t, windows.Options{})
	d := openRoot(t, calls, `C:\Users`)
	must(t, d.Mkdir("kubelet"))
	refused(t, "the same in upper case", d.Mkdir("KUBELET"), win32.ErrorAlreadyExists)
	must(t, d.Mkdir("\u212Aubelet"))
	info, err := d.Stat("KuBeLeT")
	if err != nil || info.Name != "kubelet" {
		t.Errorf("%+v, %v", info, err)
	}
}

// By handle a name is one component, exactly as it is.
func TestDirectory_takesOneComponent(t *testing.T) {
	_, calls := machine(t, windows.Options{})
	d := openRoot(t, calls, `C:\Users`)
	for _, name := range []string{"", ".", "..", `a\b`, "a/b", "a:b", "a*", "a?", `a"`, "a<", "a>", "a|", "a\x1f", "a\x00"} {
		refused(t, "Mkdir "+name, d.Mkdir(name), win32.ErrorInvalidName)
		_, err := d.Stat(name)
		refused(t, "Stat "+name, err, win32.ErrorInvalidName)
	}
	for _, name := range []string{"CON", "nul.txt", "x.", "x ", "a..b"} { // Win32's rules, not NTFS'
		must(t, d.Mkdir(name))
		must(t, d.Remove(name))
	}
}

// No method of a directory follows a reparse point, and what is not there is
// ERROR_FILE_NOT_FOUND.
func TestDirectory_followsNoLink(t *testing.T) {
	m, calls, _, _ := mounted(t)
	must(t, m.MkdirAll(`C:\Users\real\below`))
	must(t, m.Symlink(`C:\Users\link`, `C:\Users\real`, true))
	must(t, m.Symlink(`C:\Users\dangling`, `..\nowhere`, true))
	must(t, m.Junction(`C:\Users\junction`, `C:\Users\real`))
	must(t, m.WriteFile(`C:\Users\file`, 1))
	d := openRoot(t, calls, `C:\Users`)
	for name, want := range map[string]win32.Errno{
		"link": win32.ErrorStoppedOnSymlink, "dangling": win32.ErrorStoppedOnSymlink, "junction": win32.ErrorStoppedOnSymlink,
		"file": win32.ErrorDirectory, "missing": win32.ErrorFileNotFound,
	} {
		_, err := d.Open(name)
		refused(t, "opening "+name, err, want)
	}
	for name, tag := range map[string]uint32{
		"link": win32.ReparseTagSymlink, "dangling": win32.ReparseTagSymlink, "junction": win32.ReparseTagMountPoint, "real": 0, "file": 0,
	} {
		info, err := d.Stat(name)
		if err != nil || info.ReparseTag != tag || info.IsReparse() != (tag != 0) || info.IsDir() != (name != "file") {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
		data, err := d.Reparse(name)
		if tag == 0 {
			refused(t, "the reparse data of "+name, err, win32.ErrorNotAReparsePoint)
		} else if reparse, err := win32.DecodeReparse(data); err != nil || reparse.Tag != tag {
			t.Errorf("%s: %+v, %v", name, reparse, err)
		}
	}
	refused(t, "removing a full directory", d.Remove("real"), win32.ErrorDirNotEmpty)
	must(t, d.Remove("link"))
	must(t, d.Remove("junction"))
	if !m.Exists(`C:\Users\real\below`) {
		t.Error("removing a link went through it")
	}
	names, err := m.List(`C:\Users`)
	if err != nil || !slices.Equal(names, []string{"dangling", "file", "real"}) {
		t.Errorf("left are %q, %v", names, err)
	}
}

// The removal of an open directory fails with ERROR_SHARING_VIOLATION, the rename of
// a directory above it with ERROR_ACCESS_DENIED. A handle that shares deletion
// prevents neither.
func TestOpenDirectory_cannotBeSwapped(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	must(t, m.MkdirAll(`C:\Users\a\b`))
	d := openRoot(t, calls, `C:\Users\a\b`)
	refused(t, "removing it", m.Remove(`C:\Users\a\b`), win32.ErrorSharingViolation)
	refused(t, "renaming it", m.Rename(`C:\Users\a\b`, `C:\Users\a\c`), win32.ErrorSharingViolation)
	refused(t, "renaming its parent", m.Rename(`C:\Users\a`, `C:\Users\c`), win32.ErrorAccessDenied)
	// An empty directory can become a junction under an open handle: the handle
	// stays one of the directory itself.
	must(t, m.SetReparse(`C:\Users\a\b`, win32.NewMountPoint(`C:\Windows`)))
	refused(t, "making something in it", d.Mkdir("x"), win32.ErrorStoppedOnSymlink)
	must(t, d.Close())
	must(t, m.Remove(`C:\Users\a\b`))
	must(t, m.WriteFile(`C:\Users\a\file`, 1))
	f, err := m.Open(`C:\Users\a\file`, true)
	must(t, err)
	must(t, m.Remove(`C:\Users\a\file`))
	f.Close()
}

// GetFinalPathNameByHandle: the real path, by the drive letter, or by the first
// folder where the volume is mounted; without either ERROR_PATH_NOT_FOUND.
func TestPath_isTheFinalOne(t *testing.T) {
	m, calls, _, volume := mounted(t)
	must(t, m.Symlink(`C:\Users\link`, folder, true))
	must(t, m.MkdirAll(folder+`\Sub`))
	d := openRoot(t, calls, `c:\users\LINK\sub`)
	if path, err := d.Path(); err != nil || path != folder+`\Sub` {
		t.Errorf("path %q, %v", path, err)
	}
	plugins := openRoot(t, calls, `C:\var\lib\kubelet\plugins`)
	inside, err := plugins.OpenMounted("x")
	must(t, err)
	if path, err := inside.Path(); err != nil || path != folder {
		t.Errorf("path %q, %v", path, err)
	}
	must(t, calls.Volumes.DeleteMountPoint(folder+`\`))
	_, err = inside.Path()
	refused(t, "the path of a volume that is mounted nowhere", err, win32.ErrorPathNotFound)
	must(t, inside.Mkdir("still"))
	must(t, inside.Close())
	// \\?\Volume{GUID}\ is a path as well.
	if d := openRoot(t, calls, volume); d.Mkdir("too") != nil {
		t.Error("the volume's root cannot be opened by its name")
	}
}

// Links that lead to each other end with ERROR_CANT_RESOLVE_FILENAME.
func TestLinks_inACircle(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	must(t, m.Symlink(`C:\a`, `C:\b`, true))
	must(t, m.Symlink(`C:\b`, `C:\a`, true))
	_, err := calls.Files.Attributes(`C:\a\x`)
	refused(t, "a circle", err, win32.ErrorCantResolveFilename)
	must(t, m.MkdirAll(`C:\r\s`))
	must(t, m.Symlink(`C:\r\up`, `..\r\.\s`, true))
	if _, err := calls.Files.Attributes(`C:\r\up`); err != nil {
		t.Errorf("a relative link: %v", err)
	}
}

// Symlink: the target need not exist, the name must be free.
func TestSymlink_makesADirectoryLink(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	d := openRoot(t, calls, `C:\Users`)
	const target = `\\?\UNC\srv\share\`
	must(t, d.Symlink("link", target))
	refused(t, "a second one", d.Symlink("LINK", target), win32.ErrorAlreadyExists)
	info, err := m.Lstat(`C:\Users\link`)
	if err != nil || !info.IsDir() || info.ReparseTag != win32.ReparseTagSymlink {
		t.Errorf("%+v, %v", info, err)
	}
	if got, err := m.Readlink(`C:\Users\link`); err != nil || got.Substitute != `\??\UNC\srv\share\` || got.Print != target {
		t.Errorf("it holds %+v, %v", got, err)
	}
	_, err = calls.Files.Attributes(`C:\Users\link`)
	refused(t, "a server that is not there", err, win32.ErrorBadNetPath)
}

// A file that another program has open without sharing its deletion cannot be
// removed. By its path a read-only one cannot either, by handle it can.
func TestRemove_thatWindowsRefuses(t *testing.T) {
	m, calls := machine(t, windows.Options{})
	must(t, m.WriteFile(`C:\Users\file`, 5000))
	must(t, m.SetAttributes(`C:\Users\file`, win32.FileAttributeReadOnly))
	d := openRoot(t, calls, `C:\Users`)
	refused(t, "a read-only file", m.Remove(`C:\Users\file`), win32.ErrorAccessDenied)
	f, err := m.Open(`C:\Users\file`, false)
	must(t, err)
	refused(t, "an open file", d.Remove("file"), win32.ErrorSharingViolation)
	f.Close()
	must(t, d.Remove("file"))
	refused(t, "nothing", d.Remove("file"), win32.ErrorFileNotFound)
}
