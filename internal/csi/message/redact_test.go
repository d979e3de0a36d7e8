package message

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/internal/fuzztest"
)

// sloppy is a request whose secrets enter in each way that there is.
func sloppy() *csi.NodeStageVolumeRequest {
	return &csi.NodeStageVolumeRequest{
		VolumeId: "vol-1",
		Secrets: map[string]string{
			"password": "hunter2 \"quoted\"&more", "file": "of-a-file\n", "pin": "1", "short": "abc",
		},
		VolumeContext: map[string]string{
			TokensKey:                    `{"vault":{"token":"ey.J0.vault","expirationTimestamp":"2030-01-01T00:00:00Z"}}`,
			"node.session.auth.password": "chap-of-context", "smbPassword": "smb-of-context", "useToken": "true",
			"share": "//server/share", "csi.storage.k8s.io/provisioner-secret-name": "name-of-secret",
		},
		PublishContext: map[string]string{"chap_secret": "chap-of-publish"},
		VolumeCapability: &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
			MountFlags: []string{"noatime", "vers=3.0,password=of-a-flag,uid=1000", "pass=of-another"},
		}}},
	}
}

// A driver repeats what it was given as it uses it: trimmed, quoted, in a URL, or one token
// of several. Values that are too short to be told from other text stay.
func TestSecretsOf_inEveryFormInWhichDriversRepeatThem(t *testing.T) {
	secrets := SecretsOf(sloppy())
	for text, want := range map[string]string{
		`login with hunter2 "quoted"&more failed`:          "login with (redacted) failed",
		`login with "hunter2 \"quoted\"&more" failed`:      `login with "(redacted)" failed`,
		"GET /?p=hunter2+%22quoted%22%26more":              "GET /?p=(redacted)",
		"https://u:hunter2%20%22quoted%22&more@x":          "https://u:(redacted)@x",
		"password of-a-file is wrong":                      "password (redacted) is wrong",
		"token ey.J0.vault has expired":                    "token (redacted) has expired",
		"chap-of-context, smb-of-context":                  "(redacted), (redacted)",
		"iscsiadm -v chap-of-publish":                      "iscsiadm -v (redacted)",
		"mount -o vers=3.0,password=of-a-flag,uid=1000":    "mount -o vers=3.0,password=(redacted),uid=1000",
		"flag pass=of-another is not allowed":              "flag pass=(redacted) is not allowed",
		"1 of 11 volumes: abc, true, share //server/share": "1 of 11 volumes: abc, true, share //server/share",
		"Secret name-of-secret is missing":                 "Secret name-of-secret is missing",
	} {
		if got := secrets.Text(text); got != want {
			t.Errorf("%s\nis   %s\nwant %s", text, got, want)
		}
	}
}

func TestShown_hidesAttributesWithTheNameOfASecret(t *testing.T) {
	text := Loggable{sloppy()}.LogValue().String()
	for _, secret := range []string{"hunter2", "of-a-file", "ey.J0", "chap-of", "smb-of", "of-a-flag", "of-another"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is shown: %s", secret, text)
		}
	}
	for _, kept := range []string{"//server/share", "name-of-secret", "smbPassword", "vol-1"} {
		if !strings.Contains(text, kept) {
			t.Errorf("%q is not shown: %s", kept, text)
		}
	}
}

// A caller that puts the secret into other fields, too, does not put it into the log.
func TestLoggable_otherFieldsThatRepeatASecret(t *testing.T) {
	request := &csi.NodePublishVolumeRequest{TargetPath: "/run/hunter2/mount", Secrets: map[string]string{"p": "hunter2"}}
	if text := (Loggable{request}).LogValue().String(); strings.Contains(text, "hunter2") || !strings.Contains(text, "/run/(redacted)/mount") {
		t.Errorf("the log has %s", text)
	}
}

// The author of a Secret must not occupy the processors of a driver or a controller. A Secret
// of 1 MiB has room for some 50,000 entries; an error of such a call costs in proportion.
func TestSecretsOf_manySecretsCostInProportion(t *testing.T) {
	request := &csi.NodeStageVolumeRequest{VolumeId: "vol-1", Secrets: map[string]string{}}
	for i := range 50_000 {
		request.Secrets[fmt.Sprintf("%05x", i)] = fmt.Sprintf("%04x", i)
	}
	const most = 512 << 20
	fuzztest.Cost{Bytes: most}.Within(t, 0, func() {
		secrets := SecretsOf(request)
		err := errors.New("login with 0abc;\n and then with 0def failed; " + strings.Repeat("see the manual\n", 20))
		if text := secrets.Text(err.Error()); !strings.HasPrefix(text, "login with (redacted);\n and then with (redacted) failed; see the manual\n") {
			t.Errorf("the text is %q", text)
		}
		_ = Loggable{request}.LogValue()
	})
}
