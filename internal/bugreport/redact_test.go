package bugreport

import (
	"strings"
	"testing"
)

func TestText_hidesWhatLooksLikeASecret(t *testing.T) {
	for text, want := range map[string]string{
		"https://user:marker@example.com/x":          "https://(redacted)@example.com/x",
		"mount -o username=a,password=marker,vers=3": "mount -o username=a,password=(redacted),vers=3",
		`{"api_token": "marker", "size": 3}`:         `{"api_token": "(redacted)", "size": 3}`,
		`{\"chap_secret\":\"marker\"}`:               `{\"chap_secret\":\"(redacted)\"}`,
		"driver --session-token marker --root /x":    "driver --session-token (redacted) --root /x",
		"driver --access-key=marker --root /x":       "driver --access-key=(redacted) --root /x",
		"--secrets-key /etc/key, secretName: db":     "--secrets-key /etc/key, secretName: db",
		"the Secret db does not exist":               "the Secret db does not exist",
	} {
		if got := string(Text([]byte(text))); got != want {
			t.Errorf("%s\nis   %s\nwant %s", text, got, want)
		}
	}
}

func TestObjects_hidesEveryValueThatAUserGave(t *testing.T) {
	const objects = `{"items":[
		{"kind":"Secret","data":{"password":"marker"},"stringData":{"a":"marker"}},
		{"kind":"ConfigMap","data":{"level":"marker"},"binaryData":{"b":"marker"}},
		{"kind":"Pod","metadata":{"name":"web","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"marker","x":"{\"a\":\"marker\"}"}},
		 "spec":{"containers":[{"name":"main","command":["mysql","-pmarker"],"args":["marker"],"env":[{"name":"PW","value":"marker"},{"name":"REF","valueFrom":{"secretKeyRef":{"name":"db","key":"password"}}}]}],
		 "volumes":[{"name":"v","csi":{"driver":"d.example","volumeAttributes":{"share":"marker"}}}]}},
		{"kind":"StorageClass","parameters":{"type":"gp3","adminPassword":"marker"}}]}`
	data, err := Objects([]byte(objects))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if strings.Contains(text, "marker") {
		t.Errorf("a value is left: %s", text)
	}
	for _, kept := range []string{`"web"`, `"db"`, `"gp3"`, `"PW"`, `"d.example"`, `"level"`, `"adminPassword"`, `"share"`} {
		if !strings.Contains(text, kept) {
			t.Errorf("%s is not left: %s", kept, text)
		}
	}
}

// A command that a user runs in a container may have a password in any form.
func TestProcesses_hideTheCommandsOfUsers(t *testing.T) {
	for line, want := range map[string]string{
		"holdfast exec web -- mysql -pmarker": "holdfast exec web -- (redacted)",
		"holdfast host --root /a":             "holdfast host --root /a",
		"holdfast exec web --":                "holdfast exec web --",
	} {
		if got := strings.Join(withoutCommand(strings.Fields(line)), " "); got != want {
			t.Errorf("%q becomes %q, want %q", line, got, want)
		}
	}
}
