package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCSI_refusesBeforeItCalls needs no driver: the command line is wrong.
func TestCSI_refusesBeforeItCalls(t *testing.T) {
	t.Setenv("CSI_ENDPOINT", "")
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 129)
	for want, given := range map[string][]string{
		"did you mean CreateVolume":   {"csi", "CreateVolum"},
		"which driver?":               {"csi", "NodeGetInfo"},
		"exclude each other":          {"csi", "NodeGetInfo", "--endpoint", "/x.sock", "--driver", "d"},
		"129 bytes; the limit is 128": {"csi", "DeleteVolume", `{"volume_id":"` + long + `"}`},
		"takes no secrets":            {"csi", "NodeGetInfo", "--secret", "a=@" + file},
		"want KEY=@FILE":              {"csi", "DeleteVolume", "--secret", "a=hunter2"},
		"on the command line":         {"csi", "DeleteVolume", `{"volume_id":"v","secrets":{"a":"hunter2"}}`},
		"an empty request is {}":      {"csi", "DeleteVolume", " "},
		"are both needed":             {"csi", "watch", "--to", "unix:///x.sock"},
		"are the same socket":         {"csi", "watch", "--to", "unix:///x.sock", "--listen", "unix:///x.sock"},
	} {
		var out, failures bytes.Buffer
		code := Run(t.Context(), "", given, &out, &failures)
		if code != exitUsage || !strings.Contains(failures.String(), want) || strings.Contains(failures.String(), "hunter2") {
			t.Errorf("%v: exit code %d: %s", given, code, failures.String())
		}
	}
}

func TestCSI_asksForNoDriver(t *testing.T) {
	for want, given := range map[string][]string{
		`"staging_target_path": ""`: {"csi", "node-stage-volume", "--template"},
		"alpha,stream":              {"csi", "list"},
		`"name": "CreateVolume"`:    {"csi", "list", "-o", "json"},
	} {
		var out, failures bytes.Buffer
		if code := Run(t.Context(), "", given, &out, &failures); code != exitDone || !strings.Contains(out.String(), want) {
			t.Errorf("%v: exit code %d: %s%s", given, code, out.String(), failures.String())
		}
	}
}
