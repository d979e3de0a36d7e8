package local

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

func TestEphemeralSize_acceptsOnlyASize(t *testing.T) {
	const most = 10 * gibibyte
	for text, want := range map[string]int64{
		"64Mi": 64 * mebibyte, "1": mebibyte, "1.5Gi": 1536 * mebibyte, "10Gi": most, "1000k": mebibyte,
	} {
		if got, err := ephemeralSize(map[string]string{"size": text}, most); err != nil || got != want {
			t.Errorf("%s: got %d, %v; want %d", text, got, err, want)
		}
	}
	if got, err := ephemeralSize(nil, most); err != nil || got != defaultSize {
		t.Errorf("no attribute: got %d, %v", got, err)
	}
	for text, want := range map[string]error{
		"": backend.ErrInvalid, "much": backend.ErrInvalid, "1GiB": backend.ErrInvalid, "-1": backend.ErrOutOfRange,
		"0": backend.ErrOutOfRange, "11Gi": backend.ErrOutOfRange, "1e30": backend.ErrOutOfRange, "9Ei": backend.ErrOutOfRange,
		"1e" + strings.Repeat("9", 40): backend.ErrInvalid, "1e999999999": backend.ErrInvalid, "1234567890123456789e999999999": backend.ErrInvalid,
	} {
		if got, err := ephemeralSize(map[string]string{"size": text}, most); !errors.Is(err, want) {
			t.Errorf("%.40q: got %d, %v; want %v", text, got, err, want)
		}
	}
	if _, err := ephemeralSize(map[string]string{"size": "1Gi", "path": "/etc"}, most); !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), `"path"`) {
		t.Errorf("another attribute: %v; want ErrInvalid that names it", err)
	}
}

func TestCheckParameters_refusesUnknownValues(t *testing.T) {
	for _, c := range []map[string]string{
		{parameterProvisioning: "fat"}, {parameterProvisioning: ""}, {parameterSectorSize: "1024"}, {parameterSectorSize: ""},
	} {
		if err := checkParameters(c, nil); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%v: %v; want ErrInvalid", c, err)
		}
	}
	if got, err := provisioningOf(map[string]string{parameterProvisioning: thin}, map[string]string{parameterProvisioning: thick}); err != nil || got != thick {
		t.Errorf("the mutable parameter does not win: %s, %v", got, err)
	}
}

func TestCheckCapabilities_refusesSizesThatAFilesystemCannotHave(t *testing.T) {
	for fsType, least := range map[string]int64{"": 8 * mebibyte, "ext4": 8 * mebibyte, "xfs": 300 * mebibyte, "btrfs": 109 * mebibyte} {
		uses := []backend.Capability{{FSType: fsType}}
		if err := checkCapabilities(least, uses); err != nil {
			t.Errorf("%s with %d bytes: %v", fsType, least, err)
		}
		if err := checkCapabilities(least-mebibyte, uses); !errors.Is(err, backend.ErrOutOfRange) {
			t.Errorf("%s with less: %v; want ErrOutOfRange", fsType, err)
		}
	}
	if err := checkCapabilities(mebibyte, []backend.Capability{{Block: true}}); err != nil {
		t.Errorf("raw block: %v", err)
	}
}

func TestIsID_acceptsOnlyIDsOfThePool(t *testing.T) {
	if id := idOf(volumePrefix, "one"); !isVolumeID(id) || isID(snapshotPrefix, id) {
		t.Errorf("%s is not a volume ID", id)
	}
	for _, id := range []string{"", "..", "vol-", "vol-../../../../../../../../etc/passwd", "vol-" + strings.Repeat("A", 32), "csi-" + strings.Repeat("0", 64), "vol-" + strings.Repeat("0", 32) + "\n"} {
		if isVolumeID(id) {
			t.Errorf("%q was accepted", id)
		}
	}
}
