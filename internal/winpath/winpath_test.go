package winpath

import "testing"

// W-1: NormalizeWindowsPath, as a table on every system.
func TestNormalize_W_1(t *testing.T) {
	for text, want := range map[string]string{
		`C:\var\lib\kubelet`:           `C:\var\lib\kubelet`,
		`C:/var/lib/kubelet`:           `C:\var\lib\kubelet`,
		`/var/lib/kubelet`:             `c:\var\lib\kubelet`,
		`\var\lib\kubelet`:             `c:\var\lib\kubelet`,
		`\var/lib\kubelet/x.sock`:      `c:\var\lib\kubelet\x.sock`,
		`\\server\share`:               `\\server\share`,
		`//server/share`:               `\\server\share`,
		`\\.\pipe\csi-proxy-v1`:        `\\.\pipe\csi-proxy-v1`,
		`x\y`:                          `x\y`,
		`C:x`:                          `C:x`,
		``:                             ``,
		`/`:                            `c:\`,
		`d:/var/lib/kubelet/ü/a b.txt`: `d:\var\lib\kubelet\ü\a b.txt`,
	} {
		if got := Normalize(text); got != want {
			t.Errorf("%q becomes %q; want %q", text, got, want)
		}
		if again := Normalize(Normalize(text)); again != Normalize(text) {
			t.Errorf("%q becomes %q when it is normalised twice", text, again)
		}
	}
}

func TestIsAbs_needsADriveAndItsRoot(t *testing.T) {
	for text, want := range map[string]bool{
		`C:\a`: true, `c:/a`: true, `/a`: true, `\a`: true, `C:\`: true,
		`C:a`: false, `a`: false, ``: false, `\\server\share`: false, `\\?\C:\a`: false, `1:\a`: false, `é:\a`: false, `C:`: false,
	} {
		if got := IsAbs(text); got != want {
			t.Errorf("IsAbs(%q) is %t", text, got)
		}
	}
}

func TestDirAndJoin_areOpposites(t *testing.T) {
	for path, want := range map[string]string{`C:\a\b`: `C:\a`, `C:\a`: `C:\`, `a`: ``, `C:\a\b\c`: `C:\a\b`} {
		if got := Dir(path); got != want {
			t.Errorf("Dir(%q) is %q", path, got)
		}
	}
	if got := Join(`C:\`, "a", "b"); got != `C:\a\b` {
		t.Error(got)
	}
}

// D-4: whole names are compared, not strings.
func TestWithin_comparesWholeNames(t *testing.T) {
	for _, c := range []struct {
		directory, path string
		want            bool
	}{
		{`C:\var\lib\kubelet`, `C:\var\lib\kubelet\x`, true},
		{`C:\var\lib\kubelet`, `c:\VAR\lib\Kubelet`, true},
		{`C:\var\lib\kubelet\`, `/var/lib/kubelet/x`, true},
		{`C:\var\lib\kubelet`, `C:\var\lib\kubelet-evil\x`, false},
		{`C:\var\lib\kubelet`, `C:\var\lib`, false},
		{`C:\var`, `D:\var\x`, false},
	} {
		if got := Within(c.directory, c.path); got != c.want {
			t.Errorf("Within(%q, %q) is %t", c.directory, c.path, got)
		}
	}
}
