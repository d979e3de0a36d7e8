package tags

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-csi/holdfast/internal/backend"
)

var asked = map[string]string{
	"csi.storage.k8s.io/pvc/name":      "data-0",
	"csi.storage.k8s.io/pvc/namespace": "ns-prod-abcdef",
	"csi.storage.k8s.io/pv/name":       "pvc-1",
}

var snapshotMetadata = map[string]string{
	"csi.storage.k8s.io/volumesnapshot/name":        "nightly",
	"csi.storage.k8s.io/volumesnapshot/namespace":   "shop",
	"csi.storage.k8s.io/volumesnapshotcontent/name": "snapcontent-1",
}

func rules(t *testing.T, o Options) *Rules {
	t.Helper()
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVolume_hasTheTagsOfTheReferenceDriver(t *testing.T) {
	r := rules(t, Options{ClusterID: "blue", Extra: map[string]string{"team": "storage"}})
	got, err := r.Volume("pvc-1", map[string]string{Request: "abc"}, []string{"owner={{ .PVCNamespace }}/{{ .PVCName }}", "team=db"}, asked)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"CSIVolumeName": "pvc-1", "ebs.csi.aws.com/cluster": "true", "ebs.csi.aws.com/request": "abc",
		"kubernetes.io/cluster/blue": "owned", "ebs.csi.aws.com/cluster-name": "blue",
		"Name": "blue-dynamic-pvc-1", "KubernetesCluster": "blue",
		"kubernetes.io/created-for/pvc/name":      "data-0",
		"kubernetes.io/created-for/pvc/namespace": "ns-prod-abcdef",
		"kubernetes.io/created-for/pv/name":       "pvc-1",
		"owner":                                   "ns-prod-abcdef/data-0", "team": "db",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSnapshot_hasTheTagsOfTheReferenceDriver(t *testing.T) {
	r := rules(t, Options{ClusterID: "blue", Extra: map[string]string{"of": "{{ .PVCName }}", "taken": "{{ .VolumeSnapshotName }}", "team": "storage"}})
	got, err := r.Snapshot("snapshot-1", []string{"in={{ .VolumeSnapshotNamespace | toUpper }}"}, snapshotMetadata)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"CSIVolumeSnapshotName": "snapshot-1", "ebs.csi.aws.com/cluster": "true",
		"kubernetes.io/cluster/blue": "owned", "ebs.csi.aws.com/cluster-name": "blue", "Name": "blue-dynamic-snapshot-1",
		"taken": "nightly", "team": "storage", "in": "SHOP",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The flag of the design document's own examples does something.
func TestVolume_hasTheExtraVolumeTags(t *testing.T) {
	r := rules(t, Options{ExtraVolume: map[string]string{"foo": "bar"}})
	volume, err := r.Volume("v", nil, nil, nil)
	if err != nil || volume["foo"] != "bar" {
		t.Errorf("volume: %v, %v; want foo=bar", volume, err)
	}
	snapshot, err := r.Snapshot("s", nil, nil)
	if _, has := snapshot["foo"]; err != nil || has {
		t.Errorf("snapshot: %v, %v; want no foo", snapshot, err)
	}
}

func TestTemplates_computeValues(t *testing.T) {
	for text, want := range map[string]string{
		`{{ .PVCNamespace | contains "prod" }}`:                      "true",
		`{{ .PVCNamespace | field "-" 2 | toUpper }}`:                "ABCDEF",
		`{{ .PVCNamespace | substring 3 7 }}`:                        "prod",
		`{{ .PVCNamespace | index "prod" }}`:                         "3",
		`{{ .PVCNamespace | lastIndex "-" }}`:                        "7",
		`{{ printf "%s-%.2s" .PVName .PVCName }}`:                    "pvc-1-da",
		`{{ if eq .PVCName "data-0" }}first{{ else }}other{{ end }}`: "first",
		`{{ with $.PVName }}{{ . }}{{ end }}`:                        "pvc-1",
		`plain = text`:                                               "plain = text",
		``:                                                           "",
	} {
		got, err := rules(t, Options{}).Changed([]string{"key=" + text}, asked)
		if err != nil || got["key"] != want {
			t.Errorf("%s: got %q, %v; want %q", text, got["key"], err, want)
		}
	}
}

func TestTemplates_refuseWhatIsNotForTags(t *testing.T) {
	for _, text := range []string{
		`{{ html .PVCName }}`, `{{ js .PVCName }}`, `{{ urlquery .PVCName }}`, `{{ call .PVCName }}`,
		`{{ range 1000000000 }}x{{ end }}`, `{{ define "x" }}y{{ end }}z`, `{{ block "x" . }}y{{ end }}`,
		`{{ template "value" . }}`, `{{ .PVCName`, `{{ nosuch }}`, `{{ .VolumeSnapshotName }}`, `{{ .Nothing }}`, `{{ .PVCName.Length }}`,
		strings.Repeat("x", maxTemplate+1),
	} {
		err := rules(t, Options{}).CheckVolume([]string{"key=" + text})
		if !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%.60s: %v; want ErrInvalid", text, err)
		}
	}
	for _, text := range []string{
		`{{ printf "%999999d" 1 }}`, `{{ printf "%*d" 9999999 1 }}`, `{{ .PVName | field "-" 7 }}`, `{{ .PVName | substring 2 99 }}`,
		`{{ printf "%999d" 1 }}`, strings.Repeat("x", 257),
	} {
		_, err := rules(t, Options{}).Changed([]string{"key=" + text}, asked)
		if !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%.60s: %v; want ErrInvalid", text, err)
		}
	}
}

func TestVolume_refusesKeysThatAreNotTheUsers(t *testing.T) {
	for _, key := range []string{
		"", "CSIVolumeName", "CSIVolumeSnapshotName", "kubernetes.io/cluster/x", "kubernetes.io", "ebs.csi.aws.com/cluster",
		"aws:x", "AWS:x", strings.Repeat("k", 129), "a\xff",
	} {
		if err := rules(t, Options{}).CheckVolume([]string{key + "=v"}); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%.40q: %v; want ErrInvalid", key, err)
		}
		if _, err := New(Options{Extra: map[string]string{key: "v"}}); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("--extra-tags %.40q: %v; want ErrInvalid", key, err)
		}
		if err := CheckRemoval([]string{"fine", key}); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("removal of %.40q: %v; want ErrInvalid", key, err)
		}
	}
	if err := rules(t, Options{}).CheckVolume([]string{"no equals sign"}); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("without =: %v; want ErrInvalid", err)
	}
}

func TestVolume_leavesInvalidTagsOutWithAWarning(t *testing.T) {
	var log bytes.Buffer
	r := rules(t, Options{
		WarnOnInvalid: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Extra: map[string]string{"kubernetes.io/x": "1", "fine": "2"},
	})
	got, err := r.Volume("v", nil, []string{"CSIVolumeName=stolen", "no equals sign", "bad={{ html . }}", "long={{ printf \"%300d\" 1 }}", "good=3"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"CSIVolumeName": "v", "ebs.csi.aws.com/cluster": "true", "fine": "2", "good": "3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, key := range []string{"kubernetes.io/x", "CSIVolumeName", "no equals sign", "bad", "long"} {
		if !strings.Contains(log.String(), key) {
			t.Errorf("no warning names %s:\n%s", key, &log)
		}
	}
}

func TestVolume_refusesMoreTagsThanEC2Takes(t *testing.T) {
	var many []string
	for i := range maxTags - 2 {
		many = append(many, fmt.Sprintf("key-%d=v", i))
	}
	if _, err := rules(t, Options{}).Volume("v", nil, many, nil); err != nil {
		t.Errorf("50 tags: %v", err)
	}
	if _, err := rules(t, Options{}).Volume("v", nil, append(many, "more=v"), nil); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("51 tags: %v; want ErrInvalid", err)
	}
}

// The evaluation of any template ends, and results in a tag that EC2 accepts or in
// ErrInvalid.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{"k={{ .PVCName }}", "k={{ .PVName | field \"-\" 1 }}", "={{", "k={{ printf \"%9999d\" 1 }}", "k={{ with $x := .PVCName }}{{ $x }}{{ end }}", "k={{ slice .PVName 1 2 }}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		made, err := rules(t, Options{}).Changed([]string{text}, asked)
		if err != nil {
			if !errors.Is(err, backend.ErrInvalid) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if err := checkAll(made); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
