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

// The rows of §3.4 of the reference, each by its own words, and what follows from
// them. "" is accepted, anything else a part of the refusal.
var rows = []struct{ name, text, refusal string }{
	{"§3.4 below the kubelet's directory", `C:\var\lib\kubelet\plugins\x`, ""},
	{"§3.4 another case", `C:\VAR\lib\KUBELET\x`, ""},
	{"§3.4 another case of the drive", `c:\var\lib\kubelet\x`, ""},
	{"§3.4 D-4 a sibling with the same beginning", `C:\var\lib\kubelet-evil\x`, "outside"},
	{"§3.4 D-4 the same without anything below", `C:\var\lib\kubelet-evil`, "outside"},
	{"§3.4 D-4 a shorter one", `C:\var\lib\kubele\x`, "outside"},
	{"§3.4 the directory above", `C:\var\lib`, "outside"},
	{"§3.4 the drive", `C:\`, "outside"},
	{"§3.4 another drive", `D:\var\lib\kubelet\x`, "outside"},
	{"§3.4 the root itself", `C:\var\lib\kubelet`, ""},
	{"§3.4 one separator at the end", `C:\var\lib\kubelet\x\`, ""},
	{"§3.4 dot dot", `C:\var\lib\kubelet\..\x`, "moves within"},
	{"§3.4 dot dot at the end", `C:\var\lib\kubelet\x\..`, "moves within"},
	{"§3.4 dot dot that stays below", `C:\var\lib\kubelet\x\..\y`, "moves within"},
	{"§3.4 a dot", `C:\var\lib\kubelet\.\x`, "moves within"},
	{"§3.4 dots within a name", `C:\var\lib\kubelet\a..b`, ""},
	{"§3.4 a name that begins with dots", `C:\var\lib\kubelet\..data`, ""},
	{"§3.4 three dots", `C:\var\lib\kubelet\...`, "cuts off"},
	{"§3.4 slashes", `C:/var/lib/kubelet/x`, `write \ for /`},
	{"§3.4 one slash", `C:\var\lib\kubelet\x/y`, `write \ for /`},
	{"§3.4 a share", `\\srv\share`, "drive"},
	{"§3.4 an extended path", `\\?\C:\var\lib\kubelet\x`, "drive"},
	{"§3.4 a device path", `\\.\C:\var\lib\kubelet\x`, "drive"},
	{"§3.4 a kernel path", `\??\C:\var\lib\kubelet\x`, "no drive"},
	{"§3.4 a volume", `\\?\Volume{12345678-1234-1234-1234-123456789abc}\x`, "drive"},
	{"§3.4 a pipe", `\\.\pipe\csi-proxy-v1`, "drive"},
	{"§3.4 without a drive", `\var\lib\kubelet\x`, "no drive"},
	{"§3.4 relative to a drive", `C:var\lib\kubelet\x`, "current directory"},
	{"§3.4 a drive alone", `C:`, "current directory"},
	{"§3.4 relative", `x`, "not absolute"},
	{"§3.4 relative with components", `var\lib\kubelet\x`, "not absolute"},
	{"§3.4 a drive that is no letter", `1:\var\lib\kubelet\x`, "not absolute"},
	{"§3.4 a drive beyond ASCII", `Ä:\var\lib\kubelet\x`, "not absolute"},
	{"§3.4 a stream", `C:\var\lib\kubelet\x:stream`, "stream"},
	{"§3.4 the stream of a directory", `C:\var\lib\kubelet\x::$INDEX_ALLOCATION`, "stream"},
	{"§3.4 a stream on the way", `C:\var\lib\kubelet\x:$I30:$INDEX_ALLOCATION\y`, "stream"},
	{"§3.4 a dot at the end", `C:\var\lib\kubelet\x.`, "cuts off"},
	{"§3.4 a blank at the end", `C:\var\lib\kubelet\x `, "cuts off"},
	{"§3.4 a dot at the end of a component", `C:\var\lib\kubelet\x.\y`, "cuts off"},
	{"§3.4 a blank at the end of a component", `C:\var\lib\kubelet\x \y`, "cuts off"},
	{"§3.4 only blanks", `C:\var\lib\kubelet\  `, "cuts off"},
	{"§3.4 a blank within", `C:\var\lib\kubelet\a b`, ""},
	{"§3.4 a blank at the beginning", `C:\var\lib\kubelet\ b`, ""},
	{"§3.4 a dot at the end of the root", `C:\var\lib\kubelet.\x`, "cuts off"},
	{"§3.4 a short name", `C:\var\lib\kubelet\PROGRA~1`, "8.3"},
	{"§3.4 a short name with an extension", `C:\var\lib\kubelet\abcdef~1.txt\x`, "8.3"},
	{"§3.4 a short name of the root", `C:\var\lib\KUBELE~1\x`, "8.3"},
	{"§3.4 a tilde without a digit", `C:\var\lib\kubelet\pods\1\volumes\kubernetes.io~csi\pv\mount`, ""},
	{"§3.4 CON", `C:\var\lib\kubelet\CON`, "device"},
	{"§3.4 con in lower case, on the way", `C:\var\lib\kubelet\con\x`, "device"},
	{"§3.4 NUL.txt", `C:\var\lib\kubelet\NUL.txt`, "device"},
	{"§3.4 NUL with two extensions", `C:\var\lib\kubelet\nul.tar.gz`, "device"},
	{"§3.4 NUL with blanks before the extension", `C:\var\lib\kubelet\NUL  .txt`, "device"},
	{"§3.4 PRN", `C:\var\lib\kubelet\PRN`, "device"},
	{"§3.4 AUX", `C:\var\lib\kubelet\aux`, "device"},
	{"§3.4 COM1", `C:\var\lib\kubelet\COM1`, "device"},
	{"§3.4 COM9 with an extension", `C:\var\lib\kubelet\com9.log`, "device"},
	{"§3.4 COM²", `C:\var\lib\kubelet\COM²`, "device"},
	{"§3.4 COM¹ with an extension", `C:\var\lib\kubelet\com¹.log`, "device"},
	{"§3.4 LPT¹", `C:\var\lib\kubelet\LPT¹`, "device"},
	{"§3.4 LPT³", `C:\var\lib\kubelet\lpt³\x`, "device"},
	{"§3.4 CONIN$", `C:\var\lib\kubelet\CONIN$`, "device"},
	{"§3.4 CONOUT$", `C:\var\lib\kubelet\conout$`, "device"},
	{"§3.4 names that begin as devices do", `C:\var\lib\kubelet\COM10\console\LPTX\nullable\COM`, ""},
	{"§3.4 less than", `C:\var\lib\kubelet\a<b`, "no name can have"},
	{"§3.4 greater than", `C:\var\lib\kubelet\a>b`, "no name can have"},
	{"§3.4 an asterisk", `C:\var\lib\kubelet\*`, "no name can have"},
	{"§3.4 a question mark", `C:\var\lib\kubelet\a?b`, "no name can have"},
	{"§3.4 a quote", `C:\var\lib\kubelet\a"b`, "no name can have"},
	{"§3.4 a bar", `C:\var\lib\kubelet\a|b`, "no name can have"},
	{"§3.4 a control character", "C:\\var\\lib\\kubelet\\a\x1fb", "control character"},
	{"§3.4 a line's end", "C:\\var\\lib\\kubelet\\a\nb", "control character"},
	{"§3.4 NUL in it", "C:\\var\\lib\\kubelet\\a\x00b", "control character"},
	{"§3.4 NUL at the end", "C:\\var\\lib\\kubelet\\a\x00", "control character"},
	{"§3.4 an empty component", `C:\var\lib\kubelet\a\\b`, "empty"},
	{"§3.4 an empty component in the root", `C:\var\\lib\kubelet\a`, "empty"},
	{"§3.4 two separators at the end", `C:\var\lib\kubelet\a\\`, "empty"},
	{"§3.4 a path of 260 units", below(260), ""},
	{"§3.4 a path of 261 units", below(261), "260 is the limit"},
	{"§3.4 260 units of more bytes", kubelet + `\` + strings.Repeat("é", 120) + `\` + strings.Repeat("é", 120), ""},
	{"§3.4 units beyond the basic plane are two each", kubelet + `\` + strings.Repeat("😀", 121), "260 is the limit"},
	{"§3.4 invalid UTF-8", "C:\\var\\lib\\kubelet\\a\xffb", "UTF-8"},
	{"§3.4 half a surrogate pair", "C:\\var\\lib\\kubelet\\a\xed\xa0\x80b", "surrogate"},
	{"§3.4 an overlong separator", "C:\\var\\lib\\kubelet\\a\xc0\xafb", "UTF-8"},
	{"§3.4 nothing", ``, "missing"},
}

// below is a path of so many units.
func below(units int) string {
	text := kubelet + `\` + strings.Repeat("a", 100) + `\`
	return text + strings.Repeat("b", units-len(text))
}

// §3.4, D-4, D-5
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

// §3.4: the root itself is never a target.
func TestTarget_refusesARootAndWhatHoldsOne(t *testing.T) {
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
