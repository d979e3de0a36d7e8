package host

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

// Characters that no path may have ([MS-FSCC] 2.1.5), and names that no share can have. Hidden shares
// end in a dollar sign, and a file's name may have what one of 8.3 has not.
func TestSMB_refusesBadRemotePaths(t *testing.T) {
	r, h := smbRig(t)
	stop := r.machine.Record()
	bad := []string{
		"", `share`, `\server\share`, `\\server`, `\\server\`, `\\\share`, `\\server\\share`,
		`\\server\share\\x`, `\\?\UNC\server\share`, `\\.\pipe\x`,
		`\\?\server\share`, `\\server\share\..\x`, `\\server\share\.`, `\\server\share\x.`, `\\server\share\x `,
		`\\server\ share`, `C:\x`, `\\ser ver\share`,
		`\\server\pipe`, `\\server\PIPE\csi-proxy-v1`, `\\server\mailslot\x`, `\\server\IPC$`, "\\\\server\\sh\x00are", "\\\\server\\sh\nare",
		`\\server\share@` + "\xff", `\\-server\share`, `\\server\` + strings.Repeat("s", 81), `\\server\share\` + strings.Repeat("d", 260),
	}
	for _, c := range `":<>|?*` {
		bad = append(bad, `\\server\sha`+string(c)+`re`, `\\server\share\`+string(c))
	}
	for _, remote := range bad {
		mount := alice("")
		mount.Remote = remote
		if err := h.SMB.Mount(t.Context(), mount); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("mount %q: %v", remote, err)
		}
		if err := h.SMB.Unmount(t.Context(), remote, ""); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("unmount %q: %v", remote, err)
		}
	}
	for text, want := range map[string]remote{
		`\\Server\Share`: {"server", "share", ""}, `//Server/Share/`: {"server", "share", ""}, `\\10.0.0.1\a`: {"10.0.0.1", "a", ""},
		`\\server\Backup$`: {"server", "backup$", ""}, `\\server\share\a+b,c=d;e[f]$`: {"server", "share", `a+b,c=d;e[f]$`},
		`//fs.example.com/Data set/Sub/Dir`: {"fs.example.com", "data set", `Sub\Dir`},
	} {
		if got, err := parseRemote(text); got != want || err != nil {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if calls := stop(); len(calls) > 0 {
		t.Errorf("%+v were called", calls)
	}
}

func FuzzParseRemote(f *testing.F) {
	for _, text := range []string{`\\server\share\dir`, `//server/share`, `\\?\UNC\s\t`, `\\s\pipe\x`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseRemote(text)
		if err != nil {
			if !errors.Is(err, backend.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		again, err := parseRemote(r.linkTarget())
		if err != nil || again != r {
			t.Fatalf("%q gave %+v, then %+v, %v", text, r, again, err)
		}
		if strings.ContainsAny(r.String(), neverInRemote+"/") || strings.Contains(r.String()[2:], `\\`) ||
			strings.Contains(r.String()+`\`, `\..\`) {
			t.Fatalf("%q gave %q", text, r)
		}
	})
}
