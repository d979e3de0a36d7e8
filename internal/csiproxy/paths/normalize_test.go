package paths_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
	"github.com/holdfast-csi/holdfast/internal/csiproxy/paths"
)

func TestNormalize_doesWhatTheKubeletDoes(t *testing.T) {
	for _, row := range [][2]string{
		{`/var/lib/kubelet/plugins_registry/d-reg.sock`, `c:\var\lib\kubelet\plugins_registry\d-reg.sock`},
		{`\var\lib\kubelet`, `c:\var\lib\kubelet`},
		{`C:/var/lib\kubelet`, `C:\var\lib\kubelet`},
		{`C:\var\lib\kubelet`, `C:\var\lib\kubelet`},
		{`c:\x/`, `c:\x\`},
		{`relative/path`, `relative\path`},
		{`/`, `c:\`},
		{``, ``},
		{`\\srv\share`, `\\srv\share`},
		{`//srv/share`, `\\srv\share`},
		{`\\.\pipe\csi-proxy-v1`, `\\.\pipe\csi-proxy-v1`},
		{`C:\a\..\b\.`, `C:\a\..\b\.`}, // checks are another's
	} {
		if got := paths.Normalize(row[0]); got != row[1] {
			t.Errorf("%q became %q, not %q", row[0], got, row[1])
		}
	}
}

func TestParseEndpoint_takesEverySpellingOfASocket(t *testing.T) {
	const csi = `C:\csi\csi.sock`
	for text, want := range map[string]string{
		`unix:/csi/csi.sock`:       csi,
		`unix:///csi/csi.sock`:     csi,
		`unix://C:\csi\csi.sock`:   csi,
		`unix://C:\\csi\\csi.sock`: csi,
		`unix:///C:/csi/csi.sock`:  csi,
		`unix:///C:\csi\csi.sock`:  csi,
		`unix://c:/csi/csi.sock`:   csi,
		`unix:C:\csi\csi.sock`:     csi,
		`UNIX:///csi/csi.sock`:     csi,
		`unix:\csi\csi.sock`:       csi,
		`C:\csi\csi.sock`:          csi,
		`C:/csi/csi.sock`:          csi,
		`/csi/csi.sock`:            csi,
		`\csi\csi.sock`:            csi,
		`unix://D:\x\csi.sock`:     `D:\x\csi.sock`,
		`unix://C:\var\lib\kubelet\plugins\ebs.csi.aws.com\csi.sock`: `C:\var\lib\kubelet\plugins\ebs.csi.aws.com\csi.sock`,
	} {
		got, err := paths.ParseEndpoint(text)
		if err != nil || got != want {
			t.Errorf("%s is %q, %v, and not %q", text, got, err, want)
		}
	}
}

func TestParseEndpoint_rejectsAPathWithoutADrive(t *testing.T) {
	for _, text := range []string{
		``, `unix:`, `unix://`, `unix:///`, `unix:///C:/`, `C:`, `csi.sock`, `unix:csi.sock`,
		`unix://csi/csi.sock`, `unix://localhost/csi/csi.sock`,
		`unix:////srv/share/csi.sock`, `\\srv\share\csi.sock`, `\\.\pipe\csi`, `\\?\C:\csi\csi.sock`, `npipe:////./pipe/csi`, `tcp://127.0.0.1:1`,
		`http://x/csi.sock`, `unix:///csi/../csi.sock`, `unix:///csi/nul`, `unix:///csi/csi.sock:x`, "unix:///csi/\x00", "unix:///csi/\xff",
		`unix:///` + strings.Repeat("a", 120),
	} {
		if got, err := paths.ParseEndpoint(text); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "endpoint") {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
}
