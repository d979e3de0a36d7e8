package paths_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
	"github.com/holdfast-csi/holdfast/internal/policy"
	"github.com/holdfast-csi/holdfast/internal/policy/policytest"
)

// system converts paths as the system's own calls do: Windows, or wine.
type system struct{ full, convert, device *windows.LazyProc }

func newSystem() system {
	ntdll := windows.NewLazySystemDLL("ntdll.dll")
	return system{windows.NewLazySystemDLL("kernel32.dll").NewProc("GetFullPathNameW"),
		ntdll.NewProc("RtlDosPathNameToNtPathName_U"), ntdll.NewProc("RtlIsDosDeviceName_U")}
}

// fullPath is GetFullPathNameW, "" for a path that it refuses.
func (s system) fullPath(t *testing.T, path string) string {
	t.Helper()
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return ""
	}
	buffer := make([]uint16, 1<<16)
	n, _, _ := s.full.Call(uintptr(unsafe.Pointer(name)), uintptr(len(buffer)), uintptr(unsafe.Pointer(&buffer[0])), 0)
	if n >= uintptr(len(buffer)) {
		return ""
	}
	return windows.UTF16ToString(buffer[:n])
}

// ntPath is the path in the object namespace that the system would open, "" if it would
// open none.
func (s system) ntPath(t *testing.T, path string) string {
	t.Helper()
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return ""
	}
	var converted windows.NTUnicodeString
	if ok, _, _ := s.convert.Call(uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&converted)), 0, 0); byte(ok) == 0 {
		return ""
	}
	text := converted.String()
	windows.NewLazySystemDLL("ntdll.dll").NewProc("RtlFreeUnicodeString").Call(uintptr(unsafe.Pointer(&converted)))
	return text
}

func (s system) isDevice(t *testing.T, path string) bool {
	t.Helper()
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return false
	}
	found, _, _ := s.device.Call(uintptr(unsafe.Pointer(name)))
	return uint32(found) != 0
}

// texts are the corpora of the fuzz targets about paths and pipes, the tables of the tests,
// and random texts of the parts that Windows has a rule for. -paths.random says how many.
func texts(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, row := range rows {
		all = append(all, row.text)
	}
	for _, spelling := range policytest.Spellings() {
		all = append(all, spelling.Path)
	}
	all = append(all, corpus(t, "testdata/fuzz")...)
	all = append(all, corpus(t, "../../policy/testdata/fuzz")...)
	parts := []string{
		`C:`, `c:`, `D:`, `\`, `\`, `\`, `/`, `var`, `lib`, `kubelet`, `plugins`, `x`, `.`, `..`, `...`, ` `, `. `, `a.`, `a `, `NUL`, `nul.txt`, `con`, `COM1`, `com¹`, `LPT9`, `aux `, `conin$`,
		`pipe`, `PIPE`, `csi-proxy-v1`, `?`, `??`, `.`, `\\`, `\\.\`, `\\?\`, `\??\`, `GLOBALROOT`, `Device`, `NamedPipe`, `UNC`, `localhost`, `IPC$`, `~1`, `PROGRA~1`, `:`, `:stream`, `::$DATA`, "\t", "\u200b", "é", "ß", "*", "<", `"`, "|",
	}
	pipes := []string{`\\.\pipe\`, `//./pipe/`, `\\.\pipe\csi-proxy`, `\\?\pipe\csi-proxy`, `\\./PIPE\.\csi-proxy`, `\\.\x\..\pipe\csi-proxy`, `\??\pipe\csi-proxy`, `\\.\GLOBALROOT\Device\NamedPipe\csi-proxy`}
	random := rand.New(rand.NewPCG(16, 3)) //nolint:gosec // repeatable
	for range randomTexts {
		var text strings.Builder
		switch random.IntN(4) {
		case 0, 1:
			text.WriteString(kubelet)
		case 2:
			text.WriteString(pipes[random.IntN(len(pipes))])
		}
		for range random.IntN(9) {
			text.WriteString(parts[random.IntN(len(parts))])
			if random.IntN(2) == 0 {
				text.WriteString(`\`)
			}
		}
		all = append(all, text.String())
	}
	return all
}

// randomTexts is the number of random texts.
const randomTexts = 50_000

// corpus are the texts of the inputs that fuzz targets keep.
func corpus(t *testing.T, directory string) (found []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(directory, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			quoted, ok := strings.CutPrefix(strings.TrimSpace(line), "string(")
			if text, err := strconv.Unquote(strings.TrimSuffix(quoted, ")")); ok && err == nil {
				found = append(found, text)
			}
		}
	}
	return found
}

// What is accepted is what the system opens, to the letter: it strips, moves and replaces
// nothing in it, and finds no device in it.
func TestCheck_acceptsWhatTheSystemOpensAsItIs(t *testing.T) {
	s, r, accepted := newSystem(), rules(t), 0
	for _, text := range texts(t) {
		path, err := r.Check("path", text)
		if err != nil {
			continue
		}
		accepted++
		got := path.String()
		if full := s.fullPath(t, got); full != got {
			t.Errorf("%q is accepted as %q; the system's full path is %q", text, got, full)
		}
		if nt := s.ntPath(t, got); nt != `\??\`+got {
			t.Errorf("%q is accepted as %q; the system opens %q", text, got, nt)
		}
		if s.isDevice(t, got) {
			t.Errorf("%q is accepted as %q, which is a device", text, got)
		}
	}
	if accepted < 1000 {
		t.Errorf("only %d texts were accepted", accepted)
	}
	t.Logf("%d of %d texts are accepted", accepted, len(texts(t)))
}

// A normalised path leads where the path led, if the current drive is C:, as it is for
// the kubelet. Left out are texts in which the system takes every character as it is (\\?\ and
// \??\), which the kubelet normalises nevertheless and Check refuses, and a leading slash,
// from which wine, not Windows, goes to a file of Linux.
func TestNormalize_leadsWhereTheSystemGoes(t *testing.T) {
	t.Chdir(`C:\`)
	s := newSystem()
	for _, text := range texts(t) {
		if strings.ContainsRune(text, 0) || strings.HasPrefix(text, `\\?\`) || strings.HasPrefix(text, `\??\`) || strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//") {
			continue
		}
		if want, got := s.ntPath(t, text), s.ntPath(t, paths.Normalize(text)); !strings.EqualFold(got, want) {
			t.Errorf("%q leads to %q, and normalised (%q) to %q", text, want, paths.Normalize(text), got)
		}
	}
}

// What the system opens as a named pipe is a canonical pipe or refused, and never an
// ordinary path. (A path with a drive leads to no pipe.)
func TestClassify_findsEveryPipeThatTheSystemOpens(t *testing.T) {
	r, err := policy.New(nil, "")
	if err != nil {
		t.Fatal(err)
	}
	s, pipes := newSystem(), 0
	for _, text := range texts(t) {
		nt := strings.ToLower(s.ntPath(t, text))
		pipe, ok := strings.CutPrefix(nt, `\??\pipe\`)
		if !ok {
			if pipe, ok = strings.CutPrefix(nt, `\??\globalroot\device\namedpipe\`); !ok {
				continue
			}
		}
		pipes++
		if class := r.Classify(text); class == policy.Ordinary && strings.HasPrefix(pipe, "csi-proxy") {
			t.Errorf("%q is ordinary, and the system opens %q", text, nt)
		}
	}
	if pipes < 500 {
		t.Errorf("only %d texts are pipes", pipes)
	}
	t.Logf("%d texts are pipes", pipes)
}
