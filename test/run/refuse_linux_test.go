package run_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// replaced is the usual manifest with some texts replaced.
func replaced(t *testing.T, pairs ...string) string {
	t.Helper()
	text := pod("16Mi", "true", "")
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("%q is not in the manifest", pairs[i])
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// notDefault takes the annotation from the class that each host has.
const notDefault = `---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: holdfast-local, annotations: {storageclass.kubernetes.io/is-default-class: "false"}}
provisioner: local.holdfast.dev
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
`

const inline = "csi: {driver: local.holdfast.dev, volumeAttributes: {%s}}"

// TestRun_refuses runs manifests that cannot be served: it checks the message, and that
// neither a volume nor an object is left behind.
func TestRun_refuses(t *testing.T) {
	claimVolume := "persistentVolumeClaim: {claimName: data}"
	cases := []struct{ name, text, want string }{
		{"a claim that names no class", replaced(t, "  storageClassName: local\n", "") + notDefault,
			`FILE: document 2: PersistentVolumeClaim "default/data": spec.storageClassName: is missing, and no StorageClass is the default one: name one, or give one the annotation storageclass.kubernetes.io/is-default-class: "true" (existing: holdfast-local, local)`},
		{"a class that is not there", replaced(t, "storageClassName: local", "storageClassName: slow"),
			`FILE: document 2: PersistentVolumeClaim "default/data": spec.storageClassName: StorageClass "slow" does not exist (existing: holdfast-local, local)`},
		{"a driver that is not there", replaced(t, "provisioner: local.holdfast.dev", "provisioner: nfs.example"),
			`FILE: document 2: StorageClass "local": provisioner: driver nfs.example: not registered: drivers here: local.holdfast.dev (built in); another one registers with a socket in ROOT/plugins_registry`},
		{"a claim that is not there", replaced(t, claimVolume, "persistentVolumeClaim: {claimName: other}"),
			`FILE: document 3: Pod "default/test": spec.volumes[0].persistentVolumeClaim.claimName: PersistentVolumeClaim "default/other" does not exist`},
		{"a source that is not there", replaced(t, "  accessModes:", "  dataSource: {kind: PersistentVolumeClaim, name: other}\n  accessModes:"),
			`FILE: document 2: PersistentVolumeClaim "default/data": spec.dataSource: PersistentVolumeClaim "default/other" does not exist`},
		{"a copy of itself", replaced(t, "  accessModes:", "  dataSource: {kind: PersistentVolumeClaim, name: data}\n  accessModes:"),
			`FILE: document 2: PersistentVolumeClaim "default/data": spec.dataSource: is a copy of itself, over default/data`},
		{"a filesystem as a device", replaced(t, "volumeMounts: [{name: data, mountPath: /data}]", "volumeDevices: [{name: data, devicePath: /dev/data}]"),
			`FILE: document 3: Pod "default/test": container "main": volumeDevices[0]: volume "data" is a filesystem (volumeMode: Filesystem); use volumeMounts`},
		{"a device as a filesystem", replaced(t, "  accessModes:", "  volumeMode: Block\n  accessModes:"),
			`FILE: document 3: Pod "default/test": container "main": volumeMounts[0]: volume "data" is a block device (volumeMode: Block); use volumeDevices`},
		{"a secret that is not there", replaced(t, "provisioner: local.holdfast.dev", "provisioner: local.holdfast.dev\nparameters: {csi.storage.k8s.io/secret-name: a, csi.storage.k8s.io/secret-namespace: b}"),
			`StorageClass "local": the secret for CreateVolume is missing: Secret "b/a" does not exist`},
		{"a parameter that the driver does not know", replaced(t, "provisioner: local.holdfast.dev", "provisioner: local.holdfast.dev\nparameters: {colour: red}"), "claim default/data: create: driver local.holdfast.dev: CreateVolume pvc-"},
		{"a size beyond the pool", replaced(t, "storage: 16Mi", "storage: 8Pi"), "claim default/data: create: driver local.holdfast.dev: CreateVolume pvc-"},
		{"an access mode that the driver does not serve", replaced(t, "[ReadWriteOnce]", "[ReadWriteMany]"), "claim default/data: create: driver local.holdfast.dev: CreateVolume pvc-"},
		{"a filesystem that there is not", replaced(t, "provisioner: local.holdfast.dev", "provisioner: local.holdfast.dev\nparameters: {csi.storage.k8s.io/fstype: ntfs}"), "claim default/data: create: driver local.holdfast.dev: CreateVolume pvc-"},
		{"an attribute that the driver does not know", replaced(t, claimVolume, strings.Replace(inline, "%s", "path: /etc", 1)), "inline volume data: publish: driver local.holdfast.dev: NodePublishVolume csi-"},
		{"a mount path in /proc", replaced(t, "mountPath: /data", "mountPath: /proc/data"), `container "main": mount path /proc/data: nothing can be mounted in /proc`},
		{"a mount path that is a file", replaced(t, "mountPath: /data", "mountPath: /etc/passwd"), `container "main": mount path /etc/passwd: exists on this machine and is of another kind than the volume`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			file := m.write(c.text)
			r := m.run(nil, "-f", file)
			want := "holdfast: " + strings.NewReplacer("ROOT", m.root, "FILE", file).Replace(c.want)
			if r.code != 1 || !strings.Contains(r.stderr, want) {
				t.Errorf("code %d\ngot  %s\nwant %s", r.code, r.stderr, want)
			}
			m.isIdle()
			made := 0
			if strings.Contains(c.text, claimVolume) && strings.HasPrefix(c.want, "container") || strings.Contains(c.text, "path: /etc}") {
				made = 1 // the claim itself was good
			}
			m.hasVolumes(made)
			m.hasClaims(made)
		})
	}
}

func TestRun_refusesWithoutTouchingTheDisk(t *testing.T) {
	cases := []struct{ name, text, want string }{
		{"an unknown kind", "apiVersion: apps/v1\nkind: Deployment\n", `FILE: document 1: kind "Deployment" of apiVersion "apps/v1" is not supported`},
		{"a claim for a volume that exists", replaced(t, "storageClassName: local", `storageClassName: ""`),
			`FILE: document 2: PersistentVolumeClaim "default/data": spec.storageClassName: "" needs a permanent host`},
		{"an unknown field", replaced(t, "restartPolicy: Never", "restartPolicies: Never"), `FILE: document 3: Pod "default/test": unknown field "spec.restartPolicies"; did you mean "restartPolicy"?`},
		{"two of one name", replaced(t, "kind: PersistentVolumeClaim\nmetadata: {name: data}", "kind: PersistentVolumeClaim\nmetadata: {name: data}") + "---" + strings.Split(pod("16Mi", "true", ""), "---")[1],
			`FILE: document 4: PersistentVolumeClaim "default/data": is there twice: the first is FILE, document 2`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			file := m.write(c.text)
			r := m.run(nil, "-f", file)
			if want := "holdfast: " + strings.ReplaceAll(c.want, "FILE", file); r.code != 1 || !strings.HasPrefix(r.stderr, want) {
				t.Errorf("code %d\ngot  %s\nwant %s", r.code, r.stderr, want)
			}
			if _, err := os.Lstat(m.root); err == nil {
				t.Error("the root directory was made")
			}
		})
	}
	m := newMachine(t)
	m.root = filepath.Join(m.root, strings.Repeat("x", 80))
	if r := m.run(nil, "-f", examples+"quickstart.yaml"); r.code != 1 || !strings.Contains(r.stderr, "a unix socket's path has 107 at most: choose a shorter directory with --root") {
		t.Errorf("a long root: code %d, %s", r.code, r.stderr)
	}
	if r := m.run(nil); r.code != 2 || !strings.Contains(r.stderr, "-f FILE is not given") {
		t.Errorf("no file: code %d, %s", r.code, r.stderr)
	}
	if r := m.run(nil, "-f", "/nowhere.yaml"); r.code != 1 || !strings.Contains(r.stderr, "read the manifest: open /nowhere.yaml: no such file") {
		t.Errorf("an absent file: code %d, %s", r.code, r.stderr)
	}
	if _, err := os.Lstat(filepath.Dir(m.root)); err == nil {
		t.Error("the root directory was made")
	}
}

// TestRun_keepsAClaimFromBeingChanged runs once, and then with immutable fields
// changed.
func TestRun_keepsAClaimFromBeingChanged(t *testing.T) {
	m := newMachine(t)
	m.succeeds("-f", m.write(pod("16Mi", "true", "")))
	for want, text := range map[string]string{
		"spec.accessModes[0]":   replaced(t, "[ReadWriteOnce]", "[ReadWriteOncePod]"),
		"spec.volumeMode":       replaced(t, "  accessModes:", "  volumeMode: Block\n  accessModes:", "volumeMounts: [{name: data, mountPath: /data}]", "volumeDevices: [{name: data, devicePath: /dev/data}]"),
		"spec.storageClassName": replaced(t, "name: local}", "name: other}", "storageClassName: local", "storageClassName: other"),
	} {
		r := m.run(nil, "-f", m.write(text))
		if r.code != 1 || !strings.Contains(r.stderr, want+": cannot be changed from ") {
			t.Errorf("%s: code %d, %s", want, r.code, r.stderr)
		}
	}
	m.succeeds("--delete", "-f", m.write(pod("16Mi", "true", "")))
}

func (m *machine) hasClaims(want int) {
	m.t.Helper()
	opened, err := store.Open(m.root)
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = opened.Close() }()
	if err := opened.View(func(tx *store.Tx) error {
		claims, err := tx.Claims().All()
		if err != nil {
			return err
		}
		records, err := tx.Provisionings().All()
		if len(claims) != want || len(records) != 0 {
			m.t.Errorf("the store has %d claims and %d creations; want %d claims", len(claims), len(records), want)
		}
		return err
	}); err != nil {
		m.t.Fatal(err)
	}
}
