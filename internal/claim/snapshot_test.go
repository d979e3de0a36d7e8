package claim

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestNaming(t *testing.T) {
	const uid = types.UID("0f6f3b1e-9d2c-4a44-8f0a-3f2b1c4d5e6f")
	for _, row := range []struct {
		naming          Naming
		uid             types.UID
		snapshot, group string
	}{
		{Naming{}, uid, "snapshot-" + string(uid), "groupsnapshot-" + string(uid)},
		{Naming{UIDLength: -1}, uid, "snapshot-" + string(uid), "groupsnapshot-" + string(uid)},
		{Naming{Prefix: "s", UIDLength: 6}, uid, "s-0f6f3b", "s-0f6f3b"},
		{Naming{UIDLength: 99}, uid, "snapshot-0f6f3b1e9d2c4a448f0a3f2b1c4d5e6f", "groupsnapshot-0f6f3b1e9d2c4a448f0a3f2b1c4d5e6f"},
		{Naming{}, "", "", ""},
		{Naming{Prefix: strings.Repeat("p", 100)}, uid, "", ""},
	} {
		if got, err := row.naming.SnapshotName(row.uid); got != row.snapshot || (err == nil) != (row.snapshot != "") {
			t.Errorf("%+v of %q: %q, %v; want %q", row.naming, row.uid, got, err, row.snapshot)
		}
		if got, err := row.naming.GroupSnapshotName(row.uid); got != row.group || (err == nil) != (row.group != "") {
			t.Errorf("%+v of %q, group: %q, %v; want %q", row.naming, row.uid, got, err, row.group)
		}
	}
}

func TestParseSnapshotClass_stripsWhatIsKubernetes(t *testing.T) {
	const p = ReservedPrefix
	class, err := ParseSnapshotClass("c", map[string]string{
		"tier": "cold", "csiSnapshotterSecretName": "old keys stay",
		p + "snapshotter-secret-name": "a", p + "snapshotter-secret-namespace": "b",
		p + "snapshotter-list-secret-name": "${volumesnapshot.name}-x", p + "snapshotter-list-secret-namespace": "${volumesnapshot.namespace}",
		p + "group-snapshotter-secret-name": "c", p + "group-snapshotter-secret-namespace": "d",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"tier": "cold", "csiSnapshotterSecretName": "old keys stay"}
	if diff := cmp.Diff(want, class.Parameters); diff != "" {
		t.Error(diff)
	}
	reference, err := class.InspectSecret(SnapshotNames{Content: "content", Namespace: "ns", Name: "snap"}.Tokens())
	if diff := cmp.Diff(&corev1.SecretReference{Name: "snap-x", Namespace: "ns"}, reference); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestParseGroupSnapshotClass_readsWithTheGetSecret(t *testing.T) {
	class, err := ParseGroupSnapshotClass("c", map[string]string{
		ReservedPrefix + "group-snapshotter-get-secret-name":      "${volumegroupsnapshotcontent.name}",
		ReservedPrefix + "group-snapshotter-get-secret-namespace": "storage",
	})
	if err != nil {
		t.Fatal(err)
	}
	reference, err := class.InspectSecret(SnapshotNames{Content: "content"}.GroupTokens())
	if diff := cmp.Diff(&corev1.SecretReference{Name: "content", Namespace: "storage"}, reference); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestParseSnapshotClass_refuses(t *testing.T) {
	for name, parameters := range map[string]map[string]string{
		"an unknown reserved key": {ReservedPrefix + "snapshoter-secret-name": "a"},
		"half a pair":             {ReservedPrefix + "snapshotter-list-secret-name": "a"},
		"an empty half":           {ReservedPrefix + "snapshotter-secret-name": "a", ReservedPrefix + "snapshotter-secret-namespace": ""},
	} {
		if _, err := ParseSnapshotClass("cold", parameters); err == nil || !strings.Contains(err.Error(), `VolumeSnapshotClass "cold"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInspectSecret_namespaceDoesNotDependOnTheSnapshotsName(t *testing.T) {
	class := SnapshotClass{Inspect: SecretTemplate{Name: "a", Namespace: "${volumesnapshot.name}"}}
	if reference, err := class.InspectSecret(SnapshotNames{Name: "kube-system"}.Tokens()); err == nil {
		t.Errorf("resolved to %v", reference)
	}
}

func TestSnapshotKeys_Secret(t *testing.T) {
	keys := VolumeSnapshotKeys()
	for name, row := range map[string]struct {
		annotations map[string]string
		want        *corev1.SecretReference
		fails       bool
	}{
		"none":  {annotations: map[string]string{"a": "b"}},
		"both":  {annotations: map[string]string{keys.SecretName: "n", keys.SecretNamespace: "ns"}, want: &corev1.SecretReference{Name: "n", Namespace: "ns"}},
		"half":  {annotations: map[string]string{keys.SecretName: "n"}, fails: true},
		"empty": {annotations: map[string]string{keys.SecretName: "n", keys.SecretNamespace: ""}, fails: true},
	} {
		got, err := keys.Secret(row.annotations)
		if (err != nil) != row.fails || cmp.Diff(row.want, got) != "" {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestSnapshotNames_Metadata(t *testing.T) {
	names := SnapshotNames{Content: "c", Namespace: "ns", Name: "s"}
	for _, row := range []struct{ got, want map[string]string }{
		{names.Metadata(), map[string]string{
			"csi.storage.k8s.io/volumesnapshot/name": "s", "csi.storage.k8s.io/volumesnapshot/namespace": "ns",
			"csi.storage.k8s.io/volumesnapshotcontent/name": "c",
		}},
		{names.GroupMetadata(), map[string]string{
			"csi.storage.k8s.io/volumegroupsnapshot/name": "s", "csi.storage.k8s.io/volumegroupsnapshot/namespace": "ns",
			"csi.storage.k8s.io/volumegroupsnapshotcontent/name": "c",
		}},
	} {
		if diff := cmp.Diff(row.want, row.got); diff != "" {
			t.Error(diff)
		}
	}
}
