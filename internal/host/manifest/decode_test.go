package manifest

import (
	"strings"
	"testing"
)

const good = `
# a comment only
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local}
provisioner: d.example
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  storageClassName: local
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: ns}
spec:
  restartPolicy: Never
  containers:
    - {name: main, image: busybox, command: [cat], resources: {limits: {memory: 1Gi}}, volumeMounts: [{name: data, mountPath: /data}]}
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`

func TestDecode_reads(t *testing.T) {
	objects, err := Decode([]File{{Name: "a.yaml", Data: []byte(good)}, {Name: "b.yaml", Data: []byte(`{"apiVersion":"storage.k8s.io/v1","kind":"CSIDriver","metadata":{"name":"d.example"},"spec":{"podInfoOnMount":true}}`)}})
	if err != nil {
		t.Fatal(err)
	}
	if len(objects.All) != 4 || len(objects.Claims) != 1 || len(objects.Pods) != 1 {
		t.Fatalf("got %+v", objects)
	}
	if objects.Claims[0].Namespace != "default" || objects.Pods[0].Namespace != "ns" {
		t.Error("the namespaces are wrong")
	}
	want := `Pod "ns/p": spec.containers[0].image (busybox), spec.containers[0].resources`
	if len(objects.Unused) != 1 || objects.Unused[0] != want {
		t.Errorf("unused is %q, want %s", objects.Unused, want)
	}
}

// changed is the good manifest with one text replaced.
func changed(t *testing.T, old, new string) string {
	t.Helper()
	if !strings.Contains(good, old) {
		t.Fatalf("%q is not in the manifest", old)
	}
	return strings.Replace(good, old, new, 1)
}

func TestDecode_refusesByName(t *testing.T) {
	mount := "volumeMounts: [{name: data, mountPath: /data}]"
	cases := []struct{ name, text, want string }{
		{"nothing", "# nothing\n", "the manifest has no document"},
		{"no YAML", "a: b: c", "m.yaml: document 1: yaml: mapping values are not allowed in this context"},
		{"no object", "- 1", "m.yaml: document 1: is not a Kubernetes object: it is a list, without the fields apiVersion, kind and metadata"},
		{"no kind", "apiVersion: v1\n", "m.yaml: document 1: is not a Kubernetes object: kind: is missing"},
		{"a kind that is none", "apiVersion: v1\nkind: [Pod]\n", "kind: is a list, where a text is wanted"},
		{"an end, and more", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n...\nkind: Pod\n", "m.yaml: document 1: something follows its end"},
		{"a line too far left", "  apiVersion: v1\n  kind: Namespace\n metadata: {name: a}\n", "m.yaml: document 1: something follows its end"},
		{"two objects of JSON", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}} {"kind":"Pod"}`, "m.yaml: document 1: something follows its end"},
		{"a key twice", "kind: Pod\nkind: Pod\n", `key "kind" already set`},
		{"an unknown kind", "apiVersion: apps/v1\nkind: Deployment\n",
			`m.yaml: document 1: kind "Deployment" of apiVersion "apps/v1" is not supported; supported are v1 Namespace, Secret, ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod; storage.k8s.io/v1 CSIDriver, StorageClass, VolumeAttributesClass; snapshot.storage.k8s.io/v1 VolumeSnapshotClass, VolumeSnapshotContent, VolumeSnapshot`},
		{"the host's own kind", "apiVersion: storage.k8s.io/v1\nkind: CSINode\nmetadata: {name: a}\n", "CSINode objects are written by the host and cannot be given"},
		{"the host's own attachment", "apiVersion: storage.k8s.io/v1\nkind: VolumeAttachment\nmetadata: {name: a}\n", "VolumeAttachment objects are written by the host and cannot be given"},
		{"a wrong version", changed(t, "apiVersion: storage.k8s.io/v1", "apiVersion: storage.k8s.io/v1beta1"), `kind "StorageClass" of apiVersion "storage.k8s.io/v1beta1" is not supported`},
		{"an unknown field", changed(t, "restartPolicy: Never", "restartPolicies: Never"), `m.yaml: document 4: Pod "ns/p": unknown field "spec.restartPolicies"; did you mean "restartPolicy"?`},
		{"a field of the wrong case", changed(t, "accessModes:", "accessmodes:"), `m.yaml: document 3: PersistentVolumeClaim "default/data": unknown field "spec.accessmodes"; did you mean "accessModes"?`},
		{"a wrong type", changed(t, "command: [cat]", "command: cat"), `document 4: Pod "ns/p": spec.containers[0].command: is a text, where a list is wanted: write [a, b]`},
		{"two of one name", good + "---" + strings.SplitAfterN(good, "---", 3)[1], `m.yaml: document 5: StorageClass "local": is there twice: the first is m.yaml, document 2`},
		{"no name", changed(t, "metadata: {name: local}", "metadata: {}"), `StorageClass "": metadata.name: is missing`},
		{"a bad name", changed(t, "name: local", "name: Local_1"), "metadata.name: a lowercase RFC 1123 subdomain"},
		{"a bad namespace", changed(t, "namespace: ns", "namespace: a.b"), "metadata.namespace:"},
		{"a namespace where there is none", changed(t, "metadata: {name: local}", "metadata: {name: local, namespace: x}"), "objects of this kind have none"},
		{"no provisioner", changed(t, "provisioner: d.example", ""), "provisioner: is missing"},
		{"an unknown reserved parameter", changed(t, "provisioner: d.example", "provisioner: d.example\nparameters: {csi.storage.k8s.io/x: z}"),
			`document 2: StorageClass "local": parameters[csi.storage.k8s.io/x]: no such key`},
		{"an unknown policy", changed(t, "provisioner: d.example", "provisioner: d.example\nreclaimPolicy: Recycle"), `reclaimPolicy: "Recycle" is neither Delete nor Retain`},
		{"no access mode", changed(t, "accessModes: [ReadWriteOnce]", "accessModes: []"), "spec.accessModes: at least one is needed"},
		{"an unknown access mode", changed(t, "[ReadWriteOnce]", "[Sometimes]"), `spec.accessModes[0]: access mode "Sometimes"`},
		{"a mode that excludes others", changed(t, "[ReadWriteOnce]", "[ReadWriteOncePod, ReadWriteOnce]"), "ReadWriteOncePod must be the only mode"},
		{"no size", changed(t, "resources: {requests: {storage: 1Gi}}", ""), "spec.resources.requests.storage is missing"},
		{"a negative size", changed(t, "storage: 1Gi", "storage: -1Gi"), "-1Gi is not above zero"},
		{"a size that is none", changed(t, "storage: 1Gi", "storage: 10Gig"),
			`m.yaml: document 3: PersistentVolumeClaim "default/data": spec.resources.requests.storage: "10Gig" is not a quantity: write a number with Ki, Mi, Gi, Ti, Pi or Ei (of 1024), with k, M, G, T, P or E (of 1000), or alone for bytes, such as 10Gi`},
		{"a size in thousandths", changed(t, "storage: 1Gi", "storage: 100m"), "spec.resources.requests.storage: 100m is less than a byte (m is a thousandth): write M or Mi"},
		{"a populator", changed(t, "storageClassName: local", "dataSourceRef: {apiGroup: x.example, kind: Git, name: a}"), `spec.dataSourceRef: kind "Git"`},
		{"a field that cannot be honoured", changed(t, "restartPolicy: Never", "hostPID: true"), `Pod "ns/p": spec.hostPID: is not supported on one machine`},
		{"another kind of volume", changed(t, "persistentVolumeClaim: {claimName: data}", "hostPath: {path: /}"), "spec.volumes[0].hostPath: is not supported on one machine"},
		{"no kind of volume", changed(t, ", persistentVolumeClaim: {claimName: data}", ""), "spec.volumes[0]: names no kind of volume; supported are persistentVolumeClaim, csi, ephemeral, emptyDir, secret, configMap and projected"},
		{"two kinds of volume", changed(t, "persistentVolumeClaim: {claimName: data}", "persistentVolumeClaim: {claimName: data}, emptyDir: {}"), "spec.volumes[0]: names more than one kind of volume"},
		{"an emptyDir with a size", changed(t, "persistentVolumeClaim: {claimName: data}", "emptyDir: {sizeLimit: 1Mi}"), `spec.volumes[0].emptyDir.sizeLimit: "1Mi" is not supported`},
		{"no command", changed(t, "command: [cat], ", ""), "spec.containers[0].command: is needed on one machine"},
		{"a volume that is not there", changed(t, mount, "volumeMounts: [{name: other, mountPath: /data}]"), `spec.containers[0].volumeMounts[0]: the pod has no volume "other"`},
		{"a relative path", changed(t, "mountPath: /data", "mountPath: data"), `the path "data" is not absolute`},
		{"the root", changed(t, "mountPath: /data", "mountPath: /x/.."), "the root itself cannot be a mount path"},
		{"a path twice", changed(t, mount, "volumeMounts: [{name: data, mountPath: /data}, {name: data, mountPath: /data/}]"), `spec.containers[0].volumeMounts[1]: the path "/data/" is taken`},
		{"a subPath that leads out", changed(t, "mountPath: /data", "mountPath: /data, subPath: a/../../b"), `subPath: "a/../../b" leads out of the volume`},
		{"a probe is unused, a hook is not", changed(t, "image: busybox", "lifecycle: {preStop: {exec: {command: [x]}}}, livenessProbe: {exec: {command: [x]}}"), "spec.containers[0].lifecycle: is not supported"},
		{"env from elsewhere", changed(t, "image: busybox", "env: [{name: A, valueFrom: {fileKeyRef: {volumeName: s, path: p, key: k}}}]"), "spec.containers[0].env[0].valueFrom.fileKeyRef: is not supported"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Decode([]File{{Name: "m.yaml", Data: []byte(c.text)}})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestDecode_reportsEverythingAtOnce(t *testing.T) {
	text := changed(t, "provisioner: d.example", "provisioner: d.example\nreclaimPolicy: Recycle")
	text = strings.Replace(text, "storage: 1Gi", "storage: -1Gi", 1)
	_, err := Decode([]File{{Name: "m.yaml", Data: []byte(text)}})
	if err == nil || !strings.Contains(err.Error(), "document 2") || !strings.Contains(err.Error(), "document 3") {
		t.Errorf("got %v", err)
	}
}

func TestDecode_ignoresEmptyValues(t *testing.T) {
	text := changed(t, "restartPolicy: Never", "hostPID: false\n  nodeName: \"\"\n  hostAliases: []\n  restartPolicy: Always\n  status: null")
	text = strings.Replace(text, "  status: null", "", 1) + "status: {phase: Running}\n"
	objects, err := Decode([]File{{Name: "m.yaml", Data: []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	if len(objects.Unused) != 1 || !strings.HasSuffix(objects.Unused[0], ", status") {
		t.Errorf("unused is %q", objects.Unused)
	}
	if err := objects.ForRun(); err != nil || len(objects.Unused) != 2 || !strings.Contains(objects.Unused[1], "spec.restartPolicy (Always)") {
		t.Errorf("for one run, unused is %q (%v)", objects.Unused, err)
	}
}
