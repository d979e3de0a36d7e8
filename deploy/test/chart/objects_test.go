package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
)

func TestLint_findsNothing(t *testing.T) {
	for _, message := range lint.RunAll(directory, map[string]any{}, "storage").Messages {
		if message.Severity > support.InfoSev {
			t.Error(message)
		}
	}
}

func TestSchema_refusesWithTheNameOfTheValue(t *testing.T) {
	for values, want := range map[string]string{
		"bogus: 1":                                                  "'bogus' not allowed",
		"backend: zfs":                                              "/backend",
		"image: {tag: 'a b'}":                                       "/image/tag",
		"image: {digest: x}":                                        "/image/digest",
		"kubeletDir: var/lib":                                       "/kubeletDir",
		"kubeletDir: /var/../etc":                                   "/kubeletDir",
		"driverName: Upper.Case":                                    "/driverName",
		"metricsPort: 0":                                            "/metricsPort",
		"log: {level: loud}":                                        "/log/level",
		"controllers: {attach: true}":                               "'attach' not allowed",
		"controllers: {timeout: 30}":                                "/controllers/timeout",
		"controllers: {timeout: soon}":                              "/controllers/timeout",
		"local: {pool: {path: /pool}}":                              "/local/pool/path",
		"local: {pool: {path: /var/../pool}}":                       "/local/pool/path",
		"local: {pool: {overcommit: 0.5}}":                          "/local/pool/overcommit",
		"local: {pool: {reserve: 1 GB}}":                            "/local/pool/reserve",
		"ebs: {region: 'Europe 1'}":                                 "/ebs/region",
		"ebs: {endpoint: '127.0.0.1:8080'}":                         "/ebs/endpoint",
		"ebs: {extraTags: {a: 'b,c'}}":                              "/ebs/extraTags/a",
		"ebs: {extraTags: {'aws:a': b}}":                            "invalid propertyName 'aws:a'",
		"ebs: {metadataSources: []}":                                "/ebs/metadataSources",
		"ebs: {metadataSources: [labels]}":                          "/ebs/metadataSources/0",
		"ebs: {volumeAttachLimit: 200}":                             "/ebs/volumeAttachLimit",
		"ebs: {volumeAttachLimit: 5, reservedVolumeAttachments: 1}": "exclude each other",
		"ebs: {allocatableUpdatePeriodSeconds: 5}":                  "/ebs/allocatableUpdatePeriodSeconds",
		"ebs: {modifyVolumeWindow: 2}":                              "/ebs/modifyVolumeWindow",
		"csiDriver: {fsGroupPolicy: Sometimes}":                     "/csiDriver/fsGroupPolicy",
		"node: {extraArgs: [pool]}":                                 "/node/extraArgs/0",
		"node: {terminationGracePeriodSeconds: 5}":                  "/node/terminationGracePeriodSeconds",
		"node: {updateStrategy: {type: Recreate}}":                  "/node/updateStrategy",
		"controller: {replicas: 0}":                                 "/controller/replicas",
		"storageClasses: [{reclaimPolicy: Recycle}]":                "/storageClasses/0/reclaimPolicy",
		"storageClasses: [{parameters: {a: 1}}]":                    "/storageClasses/0/parameters/a",
		"volumeSnapshotClasses: [{deletionPolicy: Maybe}]":          "/volumeSnapshotClasses/0/deletionPolicy",
		"volumeAttributesClasses: [{name: a}]":                      "parameters",
		"installSnapshotClasses: true":                              "/installSnapshotClasses",
		"rbac: {secrets: {namespaces: ['*']}}":                      "/rbac/secrets/namespaces/0",
		"local: {pool: {image: {size: 1Gi}}}":                       "go together",
		"local: {pool: {image: {file: /a/b, size: 1Gi}}}":           "local.pool.image.file /a/b: want a file in /var/lib/holdfast",
		"windows: {enabled: true}":                                  "windows.enabled",
		"controllers: {snapshot: false}":                            "groupSnapshot needs controllers.snapshot",
		"controllers: {provision: false}":                           "capacity needs controllers.provision",
		"kubeletDir: /" + strings.Repeat("long/", 20) + "dir":       "107 bytes",
	} {
		if got := refusal(t, values); !strings.Contains(got, want) {
			t.Errorf("%s: %q; want %q in it", values, got, want)
		}
	}
}

// TestSchema_knowsEveryValue: each value of values.yaml is in the schema, since
// the chart renders with it, and each default of the schema's is documented.
func TestSchema_namesEqualThoseOfTheValues(t *testing.T) {
	values, err := os.ReadFile(filepath.Join(directory, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range schemaNames(t) {
		last := name[strings.LastIndexByte(name, '.')+1:]
		if name != "global" && !strings.Contains(string(values), last+":") {
			t.Errorf("%s is in the schema and not in values.yaml", name)
		}
	}
}

func TestObjects_areLabelledAndNamedAfterTheRelease(t *testing.T) {
	for name, values := range installations() {
		for _, object := range render(t, values) {
			accessor, err := meta.Accessor(object)
			if err != nil {
				t.Fatal(err)
			}
			if accessor.GetLabels()["app.kubernetes.io/instance"] != "release" {
				t.Errorf("%s: %T %s has labels %v", name, object, accessor.GetName(), accessor.GetLabels())
			}
			if strings.Contains(values, "team: storage") && accessor.GetLabels()["team"] != "storage" {
				t.Errorf("%s: %T %s lacks the common labels", name, object, accessor.GetName())
			}
		}
	}
}

// TestCSIDriver_cannotBeChangedLater keeps the immutable fields as they are.
func TestCSIDriver_cannotBeChangedLater(t *testing.T) {
	local := one[*storagev1.CSIDriver](t, render(t, "{backend: local}"))
	if local.Name != "local.holdfast.dev" || *local.Spec.AttachRequired || !*local.Spec.PodInfoOnMount || !*local.Spec.StorageCapacity ||
		*local.Spec.FSGroupPolicy != storagev1.FileFSGroupPolicy ||
		!slices.Equal(local.Spec.VolumeLifecycleModes, []storagev1.VolumeLifecycleMode{"Persistent", "Ephemeral"}) {
		t.Errorf("local: %+v", local.Spec)
	}
	ebs := one[*storagev1.CSIDriver](t, render(t, "{backend: ebs}"))
	if ebs.Name != "ebs.csi.aws.com" || !*ebs.Spec.AttachRequired || *ebs.Spec.StorageCapacity ||
		!slices.Equal(ebs.Spec.VolumeLifecycleModes, []storagev1.VolumeLifecycleMode{"Persistent"}) {
		t.Errorf("ebs: %+v", ebs.Spec)
	}
	for values, want := range map[string]int64{
		"{backend: ebs}": 10, "{backend: ebs, ebs: {metadataSources: [kubernetes]}}": 300, "{backend: ebs, ebs: {allocatableUpdatePeriodSeconds: 60}}": 60,
	} {
		if got := *one[*storagev1.CSIDriver](t, render(t, values)).Spec.NodeAllocatableUpdatePeriodSeconds; got != want {
			t.Errorf("%s: the kubelet asks every %d s; want %d", values, got, want)
		}
	}
	// A server-side apply of a field that the API server does not know fails: the
	// field is absent unless it is asked for.
	if local.Spec.PreventPodSchedulingIfMissing != nil || ebs.Spec.PreventPodSchedulingIfMissing != nil {
		t.Error("preventPodSchedulingIfMissing is given by default")
	}
	for _, backend := range []string{"local", "ebs"} {
		values := fmt.Sprintf("{backend: %s, csiDriver: {preventPodSchedulingIfMissing: true}}", backend)
		if prevents := one[*storagev1.CSIDriver](t, render(t, values)).Spec.PreventPodSchedulingIfMissing; prevents == nil || !*prevents {
			t.Errorf("%s: preventPodSchedulingIfMissing is %v", backend, prevents)
		}
	}
	// The scheduler must not wait for objects that no controller writes.
	without := one[*storagev1.CSIDriver](t, render(t, "{controllers: {capacity: false}}"))
	if *without.Spec.StorageCapacity {
		t.Error("storageCapacity without capacity objects")
	}
}

func TestClasses_areMadeForTheDriver(t *testing.T) {
	all := render(t, "{driverName: my.driver, installSnapshotClasses: always, volumeAttributesClasses: [{name: thick, parameters: {provisioning: thick}}]}")
	class := one[*storagev1.StorageClass](t, all)
	if class.Name != "holdfast-local" || class.Provisioner != "my.driver" || !*class.AllowVolumeExpansion ||
		*class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer {
		t.Errorf("%+v", class)
	}
	if got := one[*storagev1.VolumeAttributesClass](t, all).DriverName; got != "my.driver" {
		t.Errorf("VolumeAttributesClass of %s", got)
	}
	if got := one[*snapshotv1.VolumeSnapshotClass](t, all).Driver; got != "my.driver" {
		t.Errorf("VolumeSnapshotClass of %s", got)
	}
	if got := one[*groupsnapshotv1.VolumeGroupSnapshotClass](t, all).Driver; got != "my.driver" {
		t.Errorf("VolumeGroupSnapshotClass of %s", got)
	}
}

func TestClasses_followTheValues(t *testing.T) {
	class := one[*storagev1.StorageClass](t, render(t, everythingLocal))
	if *class.AllowVolumeExpansion || *class.ReclaimPolicy != "Retain" || *class.VolumeBindingMode != "Immediate" ||
		class.Annotations["storageclass.kubernetes.io/is-default-class"] != "true" || len(class.AllowedTopologies) != 1 {
		t.Errorf("%+v", class)
	}
}

// TestSnapshotClasses_needTheirCRDs: an installation must not fail for want of them.
func TestSnapshotClasses_needTheirCRDs(t *testing.T) {
	const single, group = "snapshot.storage.k8s.io/v1/VolumeSnapshotClass", "groupsnapshot.storage.k8s.io/v1/VolumeGroupSnapshotClass"
	for _, c := range []struct {
		values          string
		served          []string
		singles, groups int
	}{
		{"{}", nil, 0, 0},
		{"{}", []string{single}, 1, 0},
		{"{}", []string{single, group}, 1, 1},
		{"{installSnapshotClasses: never}", []string{single, group}, 0, 0},
		{"{installSnapshotClasses: always}", nil, 1, 1},
		{"{controllers: {groupSnapshot: false}}", []string{single, group}, 1, 0},
		{"{controllers: {groupSnapshot: false, snapshot: false}}", []string{single, group}, 0, 0},
	} {
		all := render(t, c.values, c.served...)
		if s, g := len(of[*snapshotv1.VolumeSnapshotClass](all)), len(of[*groupsnapshotv1.VolumeGroupSnapshotClass](all)); s != c.singles || g != c.groups {
			t.Errorf("%s with %v: %d and %d classes; want %d and %d", c.values, c.served, s, g, c.singles, c.groups)
		}
	}
}

func TestNotes_nameTheFirstCommands(t *testing.T) {
	notes, err := load(t).Notes(Options{Release: "release", Namespace: "storage", Values: "{}"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"daemonset/release-holdfast-node", "holdfast-local", "no snapshot CRDs"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes lack %q:\n%s", want, notes)
		}
	}
}

func TestManifests_areMadeFromTheChart(t *testing.T) {
	manifests, err := load(t).Manifests()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range manifests {
		committed, err := os.ReadFile(filepath.Join("../../manifests", m.Name))
		if err != nil || string(committed) != m.Text {
			t.Errorf("deploy/manifests/%s differs from the chart (%v); run make manifests", m.Name, err)
		}
		if strings.Contains(strings.ToLower(m.Text), "managed-by: helm") || strings.Contains(m.Text, "helm.sh/") {
			t.Errorf("%s says that helm owns it", m.Name)
		}
	}
}
