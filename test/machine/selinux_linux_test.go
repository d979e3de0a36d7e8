//go:build machine

package machine

import (
	"fmt"
	"strings"
	"testing"
)

// labelledObjects are a claim for one pod at a time, and one for several.
const labelledObjects = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: now}
provisioner: local.holdfast.dev
volumeBindingMode: Immediate
parameters: {csi.storage.k8s.io/fstype: %s}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: alone}
spec: {storageClassName: now, accessModes: [ReadWriteOncePod], resources: {requests: {storage: 320Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: shared}
spec: {storageClassName: now, accessModes: [ReadWriteOnce], resources: {requests: {storage: 320Mi}}}
`

// labelledPod is a pod that writes records to a claim with an SELinux level.
func labelledPod(name, claim, level, policy string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  securityContext: {seLinuxOptions: {level: "%s"}, seLinuxChangePolicy: %s}
  containers:
  - name: main
    image: none
    command: [/usr/local/sbin/machine-guest, write, %[1]s, /data/records]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: %[4]s}}
`, name, level, policy, claim)
}

// newEnforcing boots a Debian whose kernel enforces SELinux's policy, with the host as the
// guide of systemd says.
func newEnforcing(t *testing.T) *lab {
	l := newLabOf(t, *suite, "selinux", "security=selinux", "selinux=1", "enforcing=1")
	l.boot()
	l.putProject("deploy/systemd/holdfast-host.service")
	l.shell(`cp /root/project/deploy/systemd/holdfast-host.service /etc/systemd/system/
		restorecon -RF /etc/systemd/system /root %s /usr/local/sbin
		systemctl daemon-reload
		systemctl enable --now holdfast-host`, holdfastPath)
	if got := l.shell("getenforce"); got != "Enforcing" {
		t.Fatalf("SELinux is %s", got)
	}
	return l
}

// runLabelled applies a pod and waits until it has written.
func (l *lab) runLabelled(name, claim, level, policy string) {
	l.t.Helper()
	l.put("/root/pod.yaml", labelledPod(name, claim, level, policy))
	l.shell("holdfast apply -f /root/pod.yaml --wait --timeout 10m")
}

// labelOf is the label of the records that a running pod sees.
func (l *lab) labelOf(pod string) string {
	l.t.Helper()
	return l.shell("holdfast exec pod/%s -- stat -c %%C /data/records", pod)
}

func (l *lab) wantLabel(pod, level string) {
	l.t.Helper()
	want := "system_u:object_r:container_file_t:" + level
	if got := l.labelOf(pod); got != want {
		l.t.Errorf("the file of pod %s has the label %s, want %s", pod, got, want)
	}
}

// noDenials fails if the kernel denied anything but to programs of systemd. It says so in
// its log where no audit daemon runs.
func (l *lab) noDenials() {
	l.t.Helper()
	if got := l.shell("journalctl -b --no-pager -o cat _TRANSPORT=kernel | grep 'avc: *denied' | grep -v 'comm=\"systemd' || true"); got != "" {
		l.t.Errorf("the kernel denied:\n%s", got)
	}
}

// TestSELinux_volumesAreMountedWithTheLabelOfTheirPod: the label of a volume is a mount
// option, so that no file is relabelled, and a volume never has two of them.
func TestSELinux_volumesAreMountedWithTheLabelOfTheirPod(t *testing.T) {
	l := newEnforcing(t)
	l.shell("holdfast get csidriver/local.holdfast.dev -o yaml | sed 's/seLinuxMount: false/seLinuxMount: true/' | holdfast apply -f -")
	// Debian's policy as it is.
	l.refused("ext4", "SELinux policy of this machine does not know this label")
	l.followSections("selinux.md", "", "Debian")
	for _, filesystem := range []string{"ext4", "xfs"} {
		l.put("/root/objects.yaml", fmt.Sprintf(labelledObjects, filesystem))
		l.shell("holdfast apply -f /root/objects.yaml --wait --timeout 10m")

		// The next pod has another level, and sees the records of the one before.
		l.runLabelled("first", "alone", "s0:c10,c20", "MountOption")
		l.wantLabel("first", "s0:c10,c20")
		l.shell("holdfast delete pod/first --wait --timeout 10m")
		l.runLabelled("second", "alone", "s0:c30,c31,c32", "MountOption")
		l.wantLabel("second", "s0:c30.c32")
		l.shell("holdfast delete pod/second --wait --timeout 10m")

		// Two pods at once share the label, or the second waits.
		l.runLabelled("one", "shared", "s0:c1,c2", "MountOption")
		l.runLabelled("two", "shared", "s0:c2,c1", "MountOption")
		l.wantLabel("two", "s0:c1,c2")
		l.put("/root/pod.yaml", labelledPod("other", "shared", "s0:c5", "MountOption"))
		l.shell("holdfast apply -f /root/pod.yaml")
		l.eventually("why names the label that pod other waits for", func() bool {
			return strings.Contains(l.shell("holdfast why pod/other || true"), "SELinux label")
		})
		l.shell("holdfast delete pod/one pod/two --wait --timeout 10m")
		l.eventually("pod other runs", func() bool { return strings.Contains(l.shell("holdfast get pod/other"), "Running") })
		l.wantLabel("other", "s0:c5")
		l.shell("holdfast delete pod/other pvc/alone pvc/shared sc/now --wait --timeout 10m")
	}
	// The kernel of Debian 12.
	l.refused("btrfs", "mount no btrfs with an SELinux label")
	l.noDenials()
}

// refused runs a pod with a label that the kernel refuses for the filesystem, and waits for
// the reason.
func (l *lab) refused(filesystem, reason string) {
	l.t.Helper()
	l.put("/root/objects.yaml", fmt.Sprintf(labelledObjects, filesystem))
	l.put("/root/pod.yaml", labelledPod("first", "alone", "s0:c1", "MountOption"))
	l.shell("holdfast apply -f /root/objects.yaml -f /root/pod.yaml")
	l.eventually("why says: "+reason, func() bool { return strings.Contains(l.shell("holdfast why pod/first || true"), reason) })
	l.shell("holdfast delete pod/first pvc/alone pvc/shared sc/now --wait --timeout 10m")
}

// TestSELinux_unitsRunAndEndUnderThePolicy: what the guide of systemd installs runs, and
// ends, under the policy.
func TestSELinux_unitsRunAndEndUnderThePolicy(t *testing.T) {
	l := newEnforcing(t)
	l.shutDown(func() {})
	l.boot()
	l.shell("holdfast get pods")
	l.checkShutdown()
	l.noDenials()
}
