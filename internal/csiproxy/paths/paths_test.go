package paths_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
)

const kubelet = `C:\var\lib\kubelet`

func rules(t testing.TB, workingDirs ...string) *paths.Rules {
	t.Helper()
	r, err := paths.New(kubelet, workingDirs...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The rules of paths, each by its own words, and what follows from
// them. "" is accepted, anything else a part of the refusal.
var rows = []struct{ name, text, refusal string }{
	{"below the kubelet's directory", `C:\var\lib\kubelet\plugins\x`, ""},
	{"another case", `C:\VAR\lib\KUBELET\x`, ""},
	{"another case of the drive", `c:\var\lib\kubelet\x`, ""},
	{"a sibling with the same beginning", `C:\var\lib\kubelet-evil\x`, "outside"},
	{"the same without anything below", `C:\var\lib\kubelet-evil`, "outside"},
	{"a shorter one", `C:\var\lib\kubele\x`, "outside"},
	{"the directory above", `C:\var\lib`, "outside"},
	{"the drive", `C:\`, "outside"},
	{"another drive", `D:\var\lib\kubelet\x`, "outside"},
	{"the root itself", `C:\var\lib\kubelet`, ""},
	{"one separator at the end", `C:\var\lib\kubelet\x\`, ""},
	{"dot dot", `C:\var\lib\kubelet\..\x`, "moves within"},
	{"dot dot at the end", `C:\var\lib\kubelet\x\..`, "moves within"},
	{"dot dot that stays below", `C:\var\lib\kubelet\x\..\y`, "moves within"},
	{"a dot", `C:\var\lib\kubelet\.\x`, "moves within"},
	{"dots within a name", `C:\var\lib\kubelet\a..b`, ""},
	{"a name that begins with dots", `C:\var\lib\kubelet\..data`, ""},
	{"three dots", `C:\var\lib\kubelet\...`, "removes"},
	{"slashes", `C:/var/lib/kubelet/x`, `write \ for /`},
	{"one slash", `C:\var\lib\kubelet\x/y`, `write \ for /`},
	{"a share", `\\srv\share`, "drive"},
	{"an extended path", `\\?\C:\var\lib\kubelet\x`, "drive"},
	{"a device path", `\\.\C:\var\lib\kubelet\x`, "drive"},
	{"a kernel path", `\??\C:\var\lib\kubelet\x`, "no drive"},
	{"a volume", `\\?\Volume{12345678-1234-1234-1234-123456789abc}\x`, "drive"},
	{"a pipe", `\\.\pipe\csi-proxy-v1`, "drive"},
	{"without a drive", `\var\lib\kubelet\x`, "no drive"},
	{"relative to a drive", `C:var\lib\kubelet\x`, "current directory"},
	{"a drive alone", `C:`, "current directory"},
	{"relative", `x`, "not absolute"},
	{"relative with components", `var\lib\kubelet\x`, "not absolute"},
	{"a drive that is not a letter", `1:\var\lib\kubelet\x`, "not absolute"},
	{"a drive beyond ASCII", `Ä:\var\lib\kubelet\x`, "not absolute"},
	{"a stream", `C:\var\lib\kubelet\x:stream`, "stream"},
	{"the stream of a directory", `C:\var\lib\kubelet\x::$INDEX_ALLOCATION`, "stream"},
	{"a stream on the way", `C:\var\lib\kubelet\x:$I30:$INDEX_ALLOCATION\y`, "stream"},
	{"a dot at the end", `C:\var\lib\kubelet\x.`, "removes"},
	{"a blank at the end", `C:\var\lib\kubelet\x `, "removes"},
	{"a dot at the end of a component", `C:\var\lib\kubelet\x.\y`, "removes"},
	{"a blank at the end of a component", `C:\var\lib\kubelet\x \y`, "removes"},
	{"only blanks", `C:\var\lib\kubelet\  `, "removes"},
	{"a blank within", `C:\var\lib\kubelet\a b`, ""},
	{"a blank at the beginning", `C:\var\lib\kubelet\ b`, ""},
	{"a dot at the end of the root", `C:\var\lib\kubelet.\x`, "removes"},
	{"a short name", `C:\var\lib\kubelet\PROGRA~1`, "8.3"},
	{"a short name with an extension", `C:\var\lib\kubelet\abcdef~1.txt\x`, "8.3"},
	{"a short name of the root", `C:\var\lib\KUBELE~1\x`, "8.3"},
	{"a tilde without a digit", `C:\var\lib\kubelet\pods\1\volumes\kubernetes.io~csi\pv\mount`, ""},
	{"CON", `C:\var\lib\kubelet\CON`, "device"},
	{"con in lower case, on the way", `C:\var\lib\kubelet\con\x`, "device"},
	{"NUL.txt", `C:\var\lib\kubelet\NUL.txt`, "device"},
	{"NUL with two extensions", `C:\var\lib\kubelet\nul.tar.gz`, "device"},
	{"NUL with blanks before the extension", `C:\var\lib\kubelet\NUL  .txt`, "device"},
	{"PRN", `C:\var\lib\kubelet\PRN`, "device"},
	{"AUX", `C:\var\lib\kubelet\aux`, "device"},
	{"COM1", `C:\var\lib\kubelet\COM1`, "device"},
	{"COM9 with an extension", `C:\var\lib\kubelet\com9.log`, "device"},
	{"COM²", `C:\var\lib\kubelet\COM²`, "device"},
	{"COM¹ with an extension", `C:\var\lib\kubelet\com¹.log`, "device"},
	{"LPT¹", `C:\var\lib\kubelet\LPT¹`, "device"},
	{"LPT³", `C:\var\lib\kubelet\lpt³\x`, "device"},
	{"CONIN$", `C:\var\lib\kubelet\CONIN$`, "device"},
	{"CONOUT$", `C:\var\lib\kubelet\conout$`, "device"},
	{"names that begin as devices do", `C:\var\lib\kubelet\COM10\console\LPTX\nullable\COM`, ""},
	{"less than", `C:\var\lib\kubelet\a<b`, "no name can have"},
	{"greater than", `C:\var\lib\kubelet\a>b`, "no name can have"},
	{"an asterisk", `C:\var\lib\kubelet\*`, "no name can have"},
	{"a question mark", `C:\var\lib\kubelet\a?b`, "no name can have"},
	{"a quote", `C:\var\lib\kubelet\a"b`, "no name can have"},
	{"a bar", `C:\var\lib\kubelet\a|b`, "no name can have"},
	{"a control character", "C:\\var\\lib\\kubelet\\a\x1fb", "control character"},
	{"a line's end", "C:\\var\\lib\\kubelet\\a\nb", "control character"},
	{"NUL in it", "C:\\var\\lib\\kubelet\\a\x00b", "control character"},
	{"NUL at the end", "C:\\var\\lib\\kubelet\\a\x00", "control character"},
	{"an empty component", `C:\var\lib\kubelet\a\\b`, "empty"},
	{"an empty component in the root", `C:\var\\lib\kubelet\a`, "empty"},
	{"two separators at the end", `C:\var\lib\kubelet\a\\`, "empty"},
	{"a path of 260 units", below(260), ""},
	{"a path of 261 units", below(261), "260 is the limit"},
	{"260 units of more bytes", kubelet + `\` + strings.Repeat("é", 120) + `\` + strings.Repeat("é", 120), ""},
	{"units beyond the basic plane are two each", kubelet + `\` + strings.Repeat("😀", 121), "260 is the limit"},
	{"invalid UTF-8", "C:\\var\\lib\\kubelet\\a\xffb", "UTF-8"},
	{"half a surrogate pair", "C:\\var\\lib\\kubelet\\a\xed\xa0\x80b", "surrogate"},
	{"an overlong separator", "C:\\var\\lib\\kubelet\\a\xc0\xafb", "UTF-8"},
	{"nothing", ``, "missing"},
}

// below is a path of so many units.
func below(units int) string {
	text := kubelet + `\` + strings.Repeat("a", 100) + `\`
	return text + strings.Repeat("b", units-len(text))
}

func TestCheck_acceptsOneSpellingBelowARootAndNothingElse(t *testing.T) {
	r := rules(t)
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			path, err := r.Check("target path", row.text)
			if row.refusal == "" {
				if err != nil {
					t.Fatal(err)
				}
				if !path.IsRoot() && !strings.HasPrefix(path.String(), kubelet+`\`) {
					t.Fatalf("%q became %q", row.text, path)
				}
				return
			}
			if err == nil {
				t.Fatalf("%q is accepted as %q", row.text, path)
			}
			if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), row.refusal) {
				t.Errorf("%q is refused with %q, which does not say %q", row.text, err, row.refusal)
			}
			if !strings.Contains(err.Error(), "target path") {
				t.Errorf("the refusal %q does not name the field", err)
			}
		})
	}
}

// The root itself is never a target.
func TestTarget_rejectsARootAndItsParents(t *testing.T) {
	r := rules(t, `C:\var\lib\kubelet\plugins\smb`, `D:\work`)
	for _, text := range []string{
		kubelet, `c:\VAR\lib\kubelet\`, `C:\var\lib\kubelet\plugins`, `C:\var\lib\kubelet\Plugins\SMB`, `d:\work`,
	} {
		if _, err := r.Target("path", text); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s is a target: %v", text, err)
		}
	}
	for _, text := range []string{`C:\var\lib\kubelet\plugins\smb2`, `C:\var\lib\kubelet\plugins\smb\x`, `D:\work\x`} {
		if _, err := r.Target("path", text); err != nil {
			t.Error(err)
		}
	}
}

func TestCheck_findsTheClosestRoot(t *testing.T) {
	path, err := rules(t, `C:\var\lib\kubelet\plugins\smb`).Check("path", `C:\var\lib\kubelet\plugins\SMB\a\b`)
	if err != nil {
		t.Fatal(err)
	}
	if path.Root() != `C:\var\lib\kubelet\plugins\smb` || strings.Join(path.Components(), " ") != "a b" || path.Name() != "b" {
		t.Errorf("root %q, components %q, name %q", path.Root(), path.Components(), path.Name())
	}
}

func TestCheck_givesTheRootInItsOwnSpelling(t *testing.T) {
	path, err := rules(t).Check("path", `c:\VAR\LIB\KUBELET\Plugins`)
	if err != nil {
		t.Fatal(err)
	}
	if path.String() != `C:\var\lib\kubelet\Plugins` {
		t.Error(path)
	}
}

func TestEqualText_foldsAsNTFSDoes(t *testing.T) {
	for _, row := range []struct {
		a, b  string
		equal bool
	}{
		{"abc", "ABC", true}, {"é", "É", true}, {"я", "Я", true}, {"ÿ", "Ÿ", true}, {"σ", "Σ", true}, {"ς", "σ", true},
		{"ß", "SS", false}, {"ı", "I", false}, {"ſ", "S", false}, {"\u212a", "k", false}, // the sign of kelvin
		{"𐐨", "𐐀", false}, // beyond the basic plane nothing is folded
	} {
		if got := paths.EqualText(row.a, row.b); got != row.equal {
			t.Errorf("%q and %q are equal: %t", row.a, row.b, got)
		}
	}
}

func TestKey_isTheSameForAllSpellings(t *testing.T) {
	r := rules(t)
	a, errA := r.Check("path", `C:\var\lib\kubelet\PV\`)
	b, errB := r.Check("path", `c:\VAR\lib\kubelet\pv`)
	if errA != nil || errB != nil || a.Key() != b.Key() || !a.Equal(b) {
		t.Errorf("%q %v and %q %v", a.Key(), errA, b.Key(), errB)
	}
}

func TestNew_takesDirectoriesBelowADrive(t *testing.T) {
	r, err := paths.New("/var/lib/kubelet/", `d:\work`, `C:/VAR/lib/kubelet`)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, root := range r.Roots() {
		got = append(got, root.String())
	}
	if strings.Join(got, " ") != `C:\var\lib\kubelet D:\work` {
		t.Errorf("roots %q", got)
	}
	for _, bad := range []string{"", `C:\`, `C:`, `kubelet`, `\\srv\share\kubelet`, `\\?\C:\kubelet`, `C:\KUBELE~1`, `C:\a\..\b`, `C:\a.`} {
		if _, err := paths.New(bad); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("the root %q: %v", bad, err)
		}
	}
}

func TestCheck_showsAHostileTextQuotedAndShort(t *testing.T) {
	_, err := rules(t).Check("path", "C:\\var\\lib\\kubelet\\\x1b[2J\n"+strings.Repeat("x", 1<<16))
	if err == nil || strings.ContainsAny(err.Error(), "\x1b\n") || len(err.Error()) > 1000 {
		t.Errorf("%d bytes of error: %.100q", len(err.Error()), err)
	}
}
