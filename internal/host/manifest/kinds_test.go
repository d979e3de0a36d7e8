package manifest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/holdfast-csi/holdfast/internal/fuzztest"
)

// samples has one object of each kind, with most of its fields.
func samples() map[string]string {
	return map[string]string{
		"Namespace": "apiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: {pod-security.kubernetes.io/enforce: restricted}}\n",
		"Secret":    "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: Yg==}\nstringData: {c: d}\n",
		"ConfigMap": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\nbinaryData: {c: ZA==}\n",
		"CSIDriver": "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: D.example}\nspec: {podInfoOnMount: true, requiresRepublish: true, seLinuxMount: true, nodeAllocatableUpdatePeriodSeconds: 60, storageCapacity: true}\n",
		"StorageClass": "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: c}\nprovisioner: D.example\n" +
			"parameters: {csi.storage.k8s.io/provisioner-secret-name: \"${pvc.name}\", csi.storage.k8s.io/provisioner-secret-namespace: ns1}\n" +
			"allowedTopologies: [{matchLabelExpressions: [{key: zone, values: [a]}]}]\n",
		"VolumeAttributesClass": "apiVersion: storage.k8s.io/v1\nkind: VolumeAttributesClass\nmetadata: {name: gold}\ndriverName: d.example\nparameters: {iops: \"5\"}\n",
		"VolumeSnapshotClass":   "apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshotClass\nmetadata: {name: sc}\ndriver: d.example\ndeletionPolicy: Retain\nparameters: {a: b}\n",
		"VolumeSnapshotContent": "apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshotContent\nmetadata: {name: content}\n" +
			"spec: {driver: d.example, deletionPolicy: Delete, source: {snapshotHandle: h}, volumeSnapshotRef: {namespace: default, name: snap}, sourceVolumeMode: Block}\n",
		"VolumeSnapshot": "apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshot\nmetadata: {name: snap}\nspec: {volumeSnapshotClassName: sc, source: {persistentVolumeClaimName: data}}\n",
		"PersistentVolume": "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: pv}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce, ReadOnlyMany], mountOptions: [ro], claimRef: {namespace: default, name: data},\n" +
			"  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}]}]}},\n" +
			"  csi: {driver: d.example, volumeHandle: h, nodeStageSecretRef: {name: s, namespace: default}}}\n",
		"PersistentVolumeClaim": "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {storageClassName: \"\", volumeName: pv, volumeAttributesClassName: gold, selector: {matchLabels: {a: b}},\n" +
			"  accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}, limits: {storage: 2Gi}}, dataSourceRef: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: snap, namespace: default}}\n",
		"Pod": "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  restartPolicy: OnFailure\n  serviceAccountName: me\n  terminationGracePeriodSeconds: 3\n" +
			"  securityContext: {fsGroup: 5, fsGroupChangePolicy: OnRootMismatch, runAsUser: 7, seLinuxOptions: {level: \"s0:c1,c2\"}, seLinuxChangePolicy: MountOption}\n" +
			"  containers: [{name: main, command: [cat], volumeMounts: [{name: e, mountPath: /e, subPath: a/b}, {name: i, mountPath: /i}], volumeDevices: [{name: b, devicePath: /dev/b}]}]\n" +
			"  volumes:\n  - {name: i, csi: {driver: d.example, nodePublishSecretRef: {name: s}, volumeAttributes: {a: b}}}\n" +
			"  - {name: e, ephemeral: {volumeClaimTemplate: {metadata: {labels: {a: b}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}}}\n" +
			"  - {name: b, ephemeral: {volumeClaimTemplate: {spec: {volumeMode: Block, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}}}}\n",
	}
}

func decode(text string) (*Objects, error) {
	return Decode([]File{{Name: "m.yaml", Data: []byte(text)}})
}

func TestDecode_everyKindThatAUserGives(t *testing.T) {
	for _, kind := range Kinds() {
		text, known := samples()[kind.Kind]
		if !known {
			t.Errorf("%s has no sample", kind.Kind)
			continue
		}
		objects, err := decode(text)
		if err != nil || len(objects.All) != 1 {
			t.Errorf("%s: %v", kind.Kind, err)
			continue
		}
		given := objects.All[0]
		if given.Kind.Kind != kind.Kind || (given.GetNamespace() != "") != kind.Namespaced || given.Where != "m.yaml: document 1" {
			t.Errorf("%s became %+v", kind.Kind, given)
		}
		again(t, given)
	}
}

// again checks that an accepted object is accepted again after it was encoded.
func again(t *testing.T, given Object) {
	t.Helper()
	data, err := json.Marshal(given.Object)
	if err != nil {
		t.Errorf("%s: %v", given.Name(), err)
		return
	}
	objects, err := decode(string(data))
	if err != nil || len(objects.All) != 1 || !equality.Semantic.DeepEqual(objects.All[0].Object, given.Object) {
		t.Errorf("%s does not survive being written: %v\n%s", given.Name(), err, data)
	}
}

// TestDecode_setsTheDefaults has the API server's (k8s.io/kubernetes v1.37,
// pkg/apis/{core,storage}/v1/defaults.go).
func TestDecode_setsTheDefaults(t *testing.T) {
	get := func(kind string) any {
		t.Helper()
		objects, err := decode(samples()[kind])
		if err != nil {
			t.Fatal(err)
		}
		return objects.All[0].Object
	}
	driver := get("CSIDriver").(*storagev1.CSIDriver).Spec
	if !*driver.AttachRequired || *driver.FSGroupPolicy != storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy || *driver.PreventPodSchedulingIfMissing ||
		len(driver.VolumeLifecycleModes) != 1 || driver.VolumeLifecycleModes[0] != storagev1.VolumeLifecyclePersistent || !*driver.PodInfoOnMount {
		t.Errorf("the driver is %+v", driver)
	}
	class := get("StorageClass").(*storagev1.StorageClass)
	if *class.ReclaimPolicy != corev1.PersistentVolumeReclaimDelete || *class.VolumeBindingMode != storagev1.VolumeBindingImmediate {
		t.Errorf("the class is %+v", class)
	}
	volume := get("PersistentVolume").(*corev1.PersistentVolume).Spec
	if volume.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || *volume.VolumeMode != corev1.PersistentVolumeFilesystem || volume.ClaimRef.Kind != "PersistentVolumeClaim" {
		t.Errorf("the volume is %+v", volume)
	}
	pvc := get("PersistentVolumeClaim").(*corev1.PersistentVolumeClaim).Spec
	if *pvc.VolumeMode != corev1.PersistentVolumeFilesystem || pvc.DataSource == nil || pvc.DataSource.Name != "snap" || pvc.DataSourceRef.Namespace != nil {
		t.Errorf("the claim is %+v", pvc)
	}
	secret := get("Secret").(*corev1.Secret)
	if secret.Type != corev1.SecretTypeOpaque || string(secret.Data["a"]) != "b" || string(secret.Data["c"]) != "d" || secret.StringData != nil {
		t.Errorf("the secret is %v", secret.Type)
	}
	if namespace := get("Namespace").(*corev1.Namespace); namespace.Labels["kubernetes.io/metadata.name"] != "team" {
		t.Errorf("the namespace is %+v", namespace)
	}
	if content := get("VolumeSnapshotContent").(*snapshotv1.VolumeSnapshotContent); content.Spec.VolumeSnapshotRef.Kind != "VolumeSnapshot" {
		t.Errorf("the content is %+v", content)
	}
	pod := get("Pod").(*corev1.Pod)
	if *pod.Spec.Volumes[1].Ephemeral.VolumeClaimTemplate.Spec.VolumeMode != corev1.PersistentVolumeFilesystem {
		t.Error("the template has no volumeMode")
	}
}

// TestDecode_refusesAsAnAPIServer has the rules of each kind.
func TestDecode_refusesAsAnAPIServer(t *testing.T) {
	cases := []struct{ kind, old, new, want string }{
		{"Namespace", "name: team", "name: a.b", "metadata.name: "},
		{"Namespace", "name: team", `name: team, labels: {"a b": c}`, "already set"},
		{"Namespace", "pod-security.kubernetes.io/enforce", `"a b"`, "metadata.labels: name part must consist"},
		{"Namespace", "name: team,", "name: team, finalizers: [a.example/b],", `metadata.finalizers[0]: this host never removes the finalizer "a.example/b"`},
		{"Namespace", "name: team,", "generateName: a,", `metadata.generateName: "a" is not supported`},
		{"Namespace", "name: team,", "name: team, ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u}],", "metadata.ownerReferences: is not supported"},
		{"Secret", "a: Yg==", `"a b": Yg==`, "data[a b]: "},
		{"ConfigMap", "{a: b}", `{"a b": b}`, "data[a b]: "},
		{"ConfigMap", "{a: b}", `{c: b}`, "binaryData[c]: the key is in data, too"},
		{"ConfigMap", "ZA==", "no!", "binaryData.c: is not base64"},
		{"ConfigMap", "{a: b}", "{a: 1}", "data.a: is a number, where a text is wanted: put it in quotes"},
		{"Secret", "Yg==", "hunter2!", "data.a: is not base64"},
		{"CSIDriver", "D.example", "d_e", "metadata.name: "},
		{"CSIDriver", "D.example", strings.Repeat("d", 64), "a driver's name has 63 bytes at most"},
		{"CSIDriver", "PeriodSeconds: 60", "PeriodSeconds: 9", "spec.nodeAllocatableUpdatePeriodSeconds: 9 is less than 10"},
		{"CSIDriver", "spec: {", "spec: {fsGroupPolicy: Some, ", `spec.fsGroupPolicy: "Some" is none of ReadWriteOnceWithFSType, File, None`},
		{"CSIDriver", "spec: {", "spec: {volumeLifecycleModes: [x], ", `spec.volumeLifecycleModes[0]: "x" is neither Persistent nor Ephemeral`},
		{"CSIDriver", "spec: {", "spec: {tokenRequests: [{audience: a}], ", "spec.tokenRequests: is not supported on one machine: service account tokens are issued by an API server"},
		{"CSIDriver", "spec: {", "spec: {serviceAccountTokenInSecrets: false, ", "spec.serviceAccountTokenInSecrets: has no meaning without tokenRequests"},
		{"StorageClass", "D.example", "d/e/f", "provisioner: "},
		{"StorageClass", "provisioner-secret-namespace: ns1", "fstype: x", "must both be given"},
		{"VolumeAttributesClass", "driverName: d.example", "driverName: \"\"", "driverName: is missing"},
		{"VolumeAttributesClass", "parameters: {iops: \"5\"}", "", "parameters: at least one is needed"},
		{"VolumeSnapshotClass", "Retain", "Maybe", `deletionPolicy: "Maybe" is neither Delete nor Retain`},
		{"VolumeSnapshotClass", "{a: b}", "{csi.storage.k8s.io/x: b}", "parameters[csi.storage.k8s.io/x]"},
		{"VolumeSnapshotContent", "snapshotHandle: h", "snapshotHandle: h, volumeHandle: v", "spec.source: names one of"},
		{"VolumeSnapshotContent", "snapshotHandle: h", `snapshotHandle: ""`, "spec.source: the handle is empty"},
		{"VolumeSnapshotContent", "namespace: default, ", "", "spec.volumeSnapshotRef: needs a name and a namespace"},
		{"VolumeSnapshotContent", "Block", "Tape", "spec.sourceVolumeMode"},
		{"VolumeSnapshot", "persistentVolumeClaimName: data", "", "spec.source: names one of"},
		{"VolumeSnapshot", "volumeSnapshotClassName: sc", `volumeSnapshotClassName: ""`, "spec.volumeSnapshotClassName: "},
		{"PersistentVolume", "capacity: {storage: 1Gi}", "capacity: {storage: 0}", "spec.capacity.storage: 0 is not above zero"},
		{"PersistentVolume", "capacity: {storage: 1Gi}", "capacity: {storage: 1Gi, cpu: 1}", "spec.capacity: names storage, and nothing else"},
		{"PersistentVolume", "volumeHandle: h", `volumeHandle: ""`, "spec.csi.volumeHandle: is missing"},
		{"PersistentVolume", "{name: s, namespace: default}", "{name: s}", "spec.csi.nodeStageSecretRef: needs a name and a namespace"},
		{"PersistentVolume", "claimRef: {namespace: default, ", "claimRef: {", "spec.claimRef: needs a name and a namespace"},
		{"PersistentVolume", "csi: {", "hostPath: {path: /x}, csi: {", "spec.hostPath: is not supported on one machine: only volumes of CSI drivers"},
		{"PersistentVolume", "[ReadWriteOnce, ReadOnlyMany]", "[]", "spec.accessModes: at least one is needed"},
		{"PersistentVolume", "{requ", "{preferred: 1, requ", `unknown field "spec.nodeAffinity.preferred"`},
		{"PersistentVolumeClaim", "namespace: default}", "namespace: other}", `spec.dataSourceRef.namespace: a source in another namespace ("other") is not supported`},
		{"PersistentVolumeClaim", "selector: {matchLabels: {a: b}}", "selector: {matchExpressions: [{key: a, operator: Near}]}", "spec.selector.matchExpressions[0].operator"},
		{"PersistentVolumeClaim", "dataSourceRef", "dataSource: {kind: PersistentVolumeClaim, name: a}, dataSourceRef", "spec.dataSource: differs from dataSourceRef"},
		{"PersistentVolumeClaim", "requests: {storage: 1Gi}", "requests: {storage: 1Gi, cpu: 1}", "spec.resources.requests.cpu: is not supported on one machine: the API knows only storage here"},
		{"PersistentVolumeClaim", "volumeName: pv", "volumeName: P V", "spec.volumeName: "},
		{"Pod", "OnFailure", "Sometimes", `spec.restartPolicy: "Sometimes" is none of Always, OnFailure, Never`},
		{"Pod", "Seconds: 3", "Seconds: -3", "spec.terminationGracePeriodSeconds: -3 is below zero"},
		{"Pod", "fsGroup: 5", "fsGroup: -5", "spec.securityContext.fsGroup: -5 is not between"},
		{"Pod", "OnRootMismatch", "Never", "spec.securityContext.fsGroupChangePolicy"},
		{"Pod", "MountOption", "Never", "spec.securityContext.seLinuxChangePolicy"},
		{"Pod", "spec:\n", "spec:\n  hostUsers: false\n", "spec.hostUsers: is not supported on one machine: containers share the machine's own view"},
		{"Pod", "driver: d.example", "driver: d_e", "spec.volumes[0].csi.driver: "},
		{"Pod", "nodePublishSecretRef: {name: s}", "nodePublishSecretRef: {name: \"\"}", "spec.volumes[0].csi.nodePublishSecretRef.name: "},
		{"Pod", "{storage: 1Mi}", "{storage: -1Mi}", "spec.volumes[1].ephemeral.volumeClaimTemplate.spec.resources.requests.storage: -1Mi is not above zero"},
		{"Pod", "metadata: {labels: {a: b}}", "metadata: {name: x}", `spec.volumes[1].ephemeral.volumeClaimTemplate.metadata.name: "x" is not supported on one machine: the claim is named after`},
		{"Pod", "{name: p}", "{name: " + strings.Repeat("p", 253) + "}", "the claim's name"},
		{"Pod", "volumeDevices: [{name: b,", "volumeDevices: [{name: i,", "spec.containers[0].volumeDevices[0]: volume \"i\" is a filesystem; use volumeMounts"},
		{"Pod", "{name: i, mountPath: /i}", "{name: b, mountPath: /i}", "is a block device (volumeMode: Block); use volumeDevices"},
		{"Pod", "mountPath: /i", "mountPath: /i, mountPropagation: Bidirectional", `spec.containers[0].volumeMounts[1].mountPropagation: "Bidirectional" is not supported on one machine: leave it out`},
		{"Pod", "command: [cat]", "command: [cat], env: [{name: A, value: b, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]", "env[0]: has a value and a valueFrom"},
		{"Pod", "command: [cat]", "command: [cat], env: [{name: A, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]", "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: \"status.podIP\" is not supported"},
		{"Pod", "metadata: {labels: {a: b}}", "metadata: {labels: {a b: b}}", "spec.volumes[1].ephemeral.volumeClaimTemplate.metadata.labels: name part"},
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%s %s", c.kind, c.new), func(t *testing.T) {
			text := samples()[c.kind]
			if !strings.Contains(text, c.old) {
				t.Fatalf("%q is not in the sample", c.old)
			}
			_, err := decode(strings.Replace(text, c.old, c.new, 1))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "m.yaml: document 1: ") {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestDecode_saysNothingOfASecretsValues(t *testing.T) {
	for _, text := range []string{
		"stringData: {p: 31337}", "stringData: {p: [31337]}", "stringData: {k: 31337, p: true}", "data: {p: 31337}", `data: {p: "31337!"}`,
		"data: 31337", "stringData: 31337", "immutable: 31337", "immutable: \"31337\"", "type: {a: 31337}", "data: {p: {31337: 31337}}",
		"stringData: {p: 1, p: 31337}", "stringData: {\"a b\": \"31337\"}", "extra: 31337", "stringData: {p: \"31337\"}\nmetadata: {name: Bad_}",
		"stringData: {p: \"31337\"",
	} {
		manifest := "apiVersion: v1\nkind: Secret\n"
		if !strings.Contains(text, "metadata") {
			manifest += "metadata: {name: s}\n"
		}
		_, err := decode(manifest + text + "\n")
		if err == nil {
			t.Errorf("%s is accepted", text)
		} else if strings.Contains(strings.ReplaceAll(err.Error(), "field \"31337", ""), "31337") {
			t.Errorf("%s: the error has the value: %v", text, err)
		}
	}
}

func TestDecode_dropsKubectlsCopyOfTheManifest(t *testing.T) {
	objects, err := decode(strings.Replace(samples()["Secret"], "{name: s}", "{name: s, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{\"data\":{\"p\":\"hunter2\"}}'}}", 1))
	if err != nil || objects.All[0].GetAnnotations() != nil {
		t.Errorf("got %v, %v", objects.All, err)
	}
}

func TestDecode_takesAListApart(t *testing.T) {
	list := func(items ...string) string {
		text := "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: \"\"}\nitems:\n"
		for _, item := range items {
			text += "- " + strings.ReplaceAll(strings.TrimSuffix(item, "\n"), "\n", "\n  ") + "\n"
		}
		return text
	}
	objects, err := decode(list(samples()["Secret"], samples()["StorageClass"], samples()["VolumeSnapshot"]))
	if err != nil || len(objects.All) != 3 || objects.All[1].Where != "m.yaml: document 1, items[1]" {
		t.Fatalf("got %+v, %v", objects.All, err)
	}
	_, err = decode(list(samples()["Secret"], strings.Replace(samples()["StorageClass"], "provisioner:", "provisoner:", 1), samples()["Secret"]))
	for _, want := range []string{`m.yaml: document 1, items[1]: StorageClass "c": unknown field "provisoner"; did you mean "provisioner"?`, `items[2]: Secret "default/s": is there twice: the first is m.yaml, document 1, items[0]`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := decode(list("apiVersion: v1\nkind: List\nitems: []\n")); err == nil || !strings.Contains(err.Error(), "is a List in a List") {
		t.Errorf("got %v", err)
	}
	if _, err := decode("apiVersion: v1\nkind: List\nitem: []\n"); err == nil || !strings.Contains(err.Error(), `unknown field "item"`) {
		t.Errorf("got %v", err)
	}
}

// TestDecode_takesWhatKubectlPrints has what kubectl create --dry-run=client
// -o yaml printed, of old and new versions.
func TestDecode_takesWhatKubectlPrints(t *testing.T) {
	for _, text := range []string{
		"apiVersion: v1\nkind: Namespace\nmetadata:\n  creationTimestamp: null\n  name: team\nspec: {}\nstatus: {}\n",
		"apiVersion: v1\ndata:\n  a: Yg==\nkind: Secret\nmetadata:\n  creationTimestamp: null\n  name: s\n",
		"apiVersion: v1\nkind: Pod\nmetadata:\n  creationTimestamp: null\n  labels:\n    run: p\n  name: p\nspec:\n  containers:\n  - command:\n    - sleep\n    - \"1\"\n    image: busybox\n    name: p\n    resources: {}\n  dnsPolicy: ClusterFirst\n  restartPolicy: Always\nstatus: {}\n",
		"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  creationTimestamp: null\n  name: p\nspec:\n  accessModes: [ReadWriteOnce]\n  resources:\n    requests:\n      storage: 1Gi\nstatus: {}\n",
		"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  creationTimestamp: \"2025-01-01T00:00:00Z\"\n  finalizers: [kubernetes.io/pvc-protection]\n  name: p\n  uid: u\nspec:\n  accessModes: [ReadWriteOnce]\n  resources:\n    requests:\n      storage: 1Gi\nstatus: {phase: Bound}\n",
	} {
		if _, err := decode(text); err != nil {
			t.Error(err)
		}
	}
}

func TestForRun_refusesWhatNeedsAHostThatContinues(t *testing.T) {
	refused := map[string]string{
		"VolumeAttributesClass": "this kind", "VolumeSnapshotClass": "this kind", "VolumeSnapshotContent": "this kind", "VolumeSnapshot": "this kind",
		"PersistentVolume": "this kind", "PersistentVolumeClaim": "spec.selector", "Pod": "spec.volumes[1].ephemeral",
	}
	for kind, text := range samples() {
		objects, err := decode(text)
		if err != nil {
			t.Fatal(err)
		}
		err = objects.ForRun()
		want, no := refused[kind]
		if no != (err != nil) || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "holdfast host")) {
			t.Errorf("%s: got %v", kind, err)
		}
	}
}

const claimOfSize = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: SIZE}}}\n"

// A size with a huge exponent is refused before anything computes it.
func TestDecode_refusesQuantitiesThatTakeMinutes(t *testing.T) {
	for _, size := range []string{"1e1000000000", "1234567890123456789e999999999", "\"1e-1000000000\""} {
		fuzztest.Cost{Bytes: 16 << 20}.Within(t, 0, func() {
			_, err := decode(strings.ReplaceAll(claimOfSize, "SIZE", size))
			if err == nil || !strings.Contains(err.Error(), "storage") {
				t.Errorf("%s: %v", size, err)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(good))
	for _, text := range samples() {
		f.Add([]byte(text))
	}
	f.Add([]byte("apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n"))
	f.Add([]byte("a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n"))
	f.Add([]byte(strings.Repeat("[", 3000)))
	f.Add([]byte(strings.Repeat("a:\n", 50) + strings.Repeat("{a: ", 2000)))
	for _, size := range []string{"1e1000000000", "1234567890123456789e999999999", "1e-1000000000"} {
		f.Add([]byte(strings.ReplaceAll(claimOfSize, "SIZE", size)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var objects *Objects
		var err error
		fuzztest.Cost{Bytes: 64 << 20, PerByte: 16 << 10}.Within(t, len(data), func() {
			objects, err = Decode([]File{{Name: "m.yaml", Data: data}})
		})
		if err != nil {
			return
		}
		for _, given := range objects.All {
			again(t, given)
		}
	})
}
