package paths

import "testing"

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
