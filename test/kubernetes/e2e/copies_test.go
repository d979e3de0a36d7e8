package e2e

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
)

// fromSnapshot and fromVolume set the source of a new volume.
func fromSnapshot(name string) func(*corev1.PersistentVolumeClaimSpec) {
	group := snapshotv1.GroupName
	return func(spec *corev1.PersistentVolumeClaimSpec) {
		spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: name}
	}
}

func fromVolume(claim string) func(*corev1.PersistentVolumeClaimSpec) {
	return func(spec *corev1.PersistentVolumeClaimSpec) {
		spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: claim}
	}
}

func newSnapshot(snapshotClass, name, claim string) *snapshotv1.VolumeSnapshot {
	return &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: snapshotv1.VolumeSnapshotSpec{
			VolumeSnapshotClassName: &snapshotClass,
			Source:                  snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim},
		},
	}
}

func (c *scene) makeSnapshot(name, claim string) {
	c.Helper()
	c.makeSnapshotOf(class, name, claim)
}

func (c *scene) makeSnapshotOf(snapshotClass, name, claim string) {
	c.Helper()
	must(c)(c.snapshots.SnapshotV1().VolumeSnapshots(c.namespace).Create(c.Context(), newSnapshot(snapshotClass, name, claim), metav1.CreateOptions{}))
}

func (c *scene) waitSnapshot(name string) {
	c.Helper()
	c.eventually(func() error {
		now, err := c.snapshots.SnapshotV1().VolumeSnapshots(c.namespace).Get(c.Context(), name, metav1.GetOptions{})
		if err == nil && (now.Status == nil || now.Status.ReadyToUse == nil || !*now.Status.ReadyToUse) {
			err = fmt.Errorf("snapshot %s is not ready: %+v", name, now.Status)
		}
		return err
	})
}

// Writes after the snapshot are in the volume, not in a volume from the snapshot.
func comesBackFromASnapshot(c *scene) {
	c.makeClaim(newClaim("data", "64Mi"))
	c.run(newPod("writer", writeFile("/data/file", "8m")+" && "+idle, withClaim("data")))
	c.waitWritten("writer", "/data/file.sum")
	sum := c.exec("writer", "sync && cat /data/file.sum")
	c.makeSnapshot("then", "data")
	c.waitSnapshot("then")
	c.exec("writer", writeFile("/data/file", "4m"))
	c.makeClaim(newClaim("restored", "64Mi", fromSnapshot("then")))
	c.run(newPod("reader", idle, withClaim("restored")))
	if got := c.exec("reader", "sha256sum </restored/file"); got != sum {
		c.Errorf("the restored file has sum %q, want %q", got, sum)
	}
	c.exec("writer", checkFile("/data/file"))
	if got := c.exec("writer", "sha256sum </data/file"); got == sum {
		c.Error("the volume has gone back to the snapshot")
	}
}

// waitWritten waits until a file has content.
func (c *scene) waitWritten(pod, file string) {
	c.Helper()
	c.eventually(func() error {
		_, err := c.kubectl(c.Context(), "exec", pod, "--", "test", "-s", file)
		return err
	})
}

// A clone has the data of its source; later writes to either do not affect the other.
func isClonedWhileInUse(c *scene) {
	c.makeClaim(newClaim("data", "64Mi"))
	c.run(newPod("writer", writeFile("/data/file", "8m")+" && "+idle, withClaim("data")))
	c.waitWritten("writer", "/data/file.sum")
	c.exec("writer", "sync")
	c.makeClaim(newClaim("clone", "96Mi", fromVolume("data")))
	c.run(newPod("reader", idle, withClaim("clone")))
	c.exec("reader", checkFile("/clone/file"))
	if got := c.exec("reader", "df -m /clone | awk 'END {print ($2 > 64)}'"); got != "1" {
		c.Errorf("the clone is not larger than its source: %s", c.exec("reader", "df -m /clone"))
	}
	c.exec("reader", "rm /clone/file && sync")
	c.exec("writer", checkFile("/data/file"))
}

// The members of a group are snapshots of the same moment.
func comesBackFromASnapshotOfAGroup(c *scene) {
	labels := map[string]string{"group": c.namespace}
	for _, name := range []string{"one", "two"} {
		claim := newClaim(name, "64Mi")
		claim.Labels = labels
		c.makeClaim(claim)
	}
	// A number is in the second volume only after it is in the first.
	script := "i=0; while i=$((i+1)); do echo $i >/one/n.new && sync && mv /one/n.new /one/n && sync && " +
		"echo $i >/two/n.new && sync && mv /two/n.new /two/n && sync; done"
	c.run(newPod("writer", script, withClaim("one"), withClaim("two")))
	c.waitWritten("writer", "/two/n")
	group := c.snapshotGroup("together", labels)
	c.makeClaim(newClaim("first", "64Mi", fromSnapshot(group["one"])))
	c.makeClaim(newClaim("second", "64Mi", fromSnapshot(group["two"])))
	c.run(newPod("reader", idle, withClaim("first"), withClaim("second")))
	var first, second int
	text := c.exec("reader", "cat /first/n /second/n")
	if _, err := fmt.Sscan(text, &first, &second); err != nil || first < second || first > second+1 {
		c.Errorf("the members have numbers %q, %v: want the second no more than one behind", text, err)
	}
}

// snapshotGroup returns the names of the two members' snapshots by claim.
func (c *scene) snapshotGroup(name string, labels map[string]string) map[string]string {
	c.Helper()
	c.makeGroupSnapshot(name, labels)
	return c.waitGroupSnapshot(name)
}

func (c *scene) makeGroupSnapshot(name string, labels map[string]string) {
	c.Helper()
	groupClass := class
	group := &groupsnapshotv1.VolumeGroupSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: groupsnapshotv1.VolumeGroupSnapshotSpec{
			VolumeGroupSnapshotClassName: &groupClass,
			Source:                       groupsnapshotv1.VolumeGroupSnapshotSource{Selector: &metav1.LabelSelector{MatchLabels: labels}},
		},
	}
	must(c)(c.snapshots.GroupsnapshotV1().VolumeGroupSnapshots(c.namespace).Create(c.Context(), group, metav1.CreateOptions{}))
}

// waitGroupSnapshot returns the names of the two members' snapshots by claim.
func (c *scene) waitGroupSnapshot(name string) map[string]string {
	c.Helper()
	c.eventually(func() error {
		now, err := c.snapshots.GroupsnapshotV1().VolumeGroupSnapshots(c.namespace).Get(c.Context(), name, metav1.GetOptions{})
		if err == nil && (now.Status == nil || now.Status.ReadyToUse == nil || !*now.Status.ReadyToUse) {
			err = fmt.Errorf("group snapshot %s is not ready: %+v", name, now.Status)
		}
		return err
	})
	members := make(map[string]string)
	list, err := c.snapshots.SnapshotV1().VolumeSnapshots(c.namespace).List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	for _, s := range list.Items {
		if s.Status == nil || s.Status.VolumeGroupSnapshotName == nil || *s.Status.VolumeGroupSnapshotName != name {
			continue
		}
		claim := *s.Spec.Source.PersistentVolumeClaimName
		if members[claim] != "" {
			c.Fatalf("group %s has the members %s and %s, both of %s", name, members[claim], s.Name, claim)
		}
		members[claim] = s.Name
	}
	if len(members) != 2 {
		c.Fatalf("group %s has the members %v, want two", name, members)
	}
	return members
}
