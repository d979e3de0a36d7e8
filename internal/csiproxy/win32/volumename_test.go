package win32

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

const canonicalVolume = `\\?\Volume{0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9}\`

// A volume ID is checked before it is used.
func TestParseVolumeName_acceptsTheNamesOfVolumesAndNothingElse(t *testing.T) {
	good := []string{
		canonicalVolume,
		strings.TrimSuffix(canonicalVolume, `\`),
		strings.ToUpper(canonicalVolume),
		strings.ToLower(canonicalVolume),
	}
	for _, text := range good {
		if got, err := ParseVolumeName(text); got != canonicalVolume || err != nil {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	inner := "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
	bad := []string{
		"", `\`, `C:\`, inner, "{" + inner + "}",
		canonicalVolume + `\`, canonicalVolume + `dir`, canonicalVolume + ":stream", canonicalVolume + " ",
		" " + canonicalVolume, canonicalVolume + "\x00",
		`\\.\Volume{` + inner + `}\`, `\??\Volume{` + inner + `}\`, `//?/Volume{` + inner + `}/`,
		`\\?\GLOBALROOT\Device\HarddiskVolume1`, `\\?\PhysicalDrive0`,
		`\\?\Volume` + inner + `\`, `\\?\Volume{` + inner + `\`, `\\?\Volume{{` + inner + `}}\`,
		`\\?\Volume{` + inner[1:] + `}\`, `\\?\Volume{0` + inner + `}\`,
		`\\?\Volume{` + strings.ReplaceAll(inner, "-", "") + `}\`,
		`\\?\Volume{` + strings.Replace(inner, "0a", "0g", 1) + `}\`, `\\?\Volume{` + inner + `}/`,
		`\\?\Volume{$(calc)}\`, `\\?\Volume{' or 1=1}\`, `\\?\Volume{` + strings.Repeat("a", 100_000) + `}\`,
	}
	for _, text := range bad {
		if got, err := ParseVolumeName(text); got != "" || !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%.80q: %q, %v", text, got, err)
		} else if len(err.Error()) > 400 {
			t.Errorf("%.20q: an error of %d bytes", text, len(err.Error()))
		}
	}
}

func FuzzParseVolumeName(f *testing.F) {
	f.Add(canonicalVolume)
	f.Add(strings.ToUpper(strings.TrimSuffix(canonicalVolume, `\`)))
	f.Add(`\\?\Volume{}\`)
	f.Fuzz(func(t *testing.T, text string) {
		name, err := ParseVolumeName(text)
		if err != nil {
			if name != "" || !errors.Is(err, backend.ErrInvalid) {
				t.Fatalf("%q: %q, %v", text, name, err)
			}
			return
		}
		if again, err := ParseVolumeName(name); again != name || err != nil {
			t.Fatalf("%q gave %q, which gives %q, %v", text, name, again, err)
		}
		if len(name) != len(canonicalVolume) || !strings.EqualFold(strings.TrimSuffix(text, `\`), strings.TrimSuffix(name, `\`)) {
			t.Fatalf("%q became %q", text, name)
		}
	})
}
