package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func readsWhatAnEarlierPodWrote(c *scene) {
	c.makeClaim(newClaim("data", "64Mi"))
	c.succeed(newPod("writer", writeFile("/data/file", "8m"), withClaim("data")))
	c.removePod("writer")
	c.succeed(newPod("reader", checkFile("/data/file"), withClaim("data")))
}

func isABlockDevice(c *scene) {
	c.makeClaim(newClaim("disk", "64Mi", asBlock))
	c.succeed(newPod("writer", "yes holdfast | head -c 64m >/dev/disk && sync", withDevice("disk")))
	c.removePod("writer")
	c.run(newPod("reader", idle, withDevice("disk")))
	if got := c.exec("reader", "test -b /dev/disk && yes holdfast | head -c 64m | cmp - /dev/disk && echo same"); got != "same" {
		c.Errorf("the device lacks the written data: %q", got)
	}
}

// Files and directories belong to the pod's group, also for a process that is
// not root.
func belongsToTheGroupOfItsPod(c *scene) {
	c.makeClaim(newClaim("data", "64Mi"))
	user, group := int64(1001), int64(2002)
	asUser := func(spec *corev1.PodSpec) {
		spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &user, RunAsGroup: &user, FSGroup: &group}
	}
	c.run(newPod("user", "echo text >/data/file && "+idle, withClaim("data"), asUser))
	if got := c.exec("user", "stat -c '%u %g' /data/file"); got != "1001 2002" {
		c.Errorf("a new file belongs to %q, want 1001 2002: the directory's group is inherited", got)
	}
	if got := c.exec("user", "stat -c '%g %a' /data"); got != "2002 2775" {
		c.Errorf("the volume has group and mode %q, want 2002 2775", got)
	}
}

// statefulSet has a replica on each node.
func statefulSet(name string, replicas int32) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	pod := newPod(name, "touch /data/$HOSTNAME && "+idle, func(spec *corev1.PodSpec) {
		spec.RestartPolicy = corev1.RestartPolicyAlways
		spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: labels},
			}},
		}}
	})
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: name, PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector:             &metav1.LabelSelector{MatchLabels: labels},
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*newClaim("data", "64Mi")},
		},
	}
}

func isOfOneReplicaForEver(c *scene) {
	must(c)(c.api.AppsV1().StatefulSets(c.namespace).Create(c.Context(), statefulSet("set", 2), metav1.CreateOptions{}))
	replicas := []string{"set-0", "set-1"}
	nodes := make(map[string]string)
	for _, name := range replicas {
		nodes[name] = c.waitReady(name)
	}
	if nodes["set-0"] == nodes["set-1"] {
		c.Fatalf("both replicas are on %s", nodes["set-0"])
	}
	c.scale("set", 0)
	c.scale("set", 2)
	for _, name := range replicas {
		if node := c.waitReady(name); node != nodes[name] {
			c.Errorf("%s was on %s and is on %s: its volume cannot have moved", name, nodes[name], node)
		}
		if got := c.exec(name, "ls /data | grep -v lost+found"); got != name {
			c.Errorf("the volume of %s has the files %q of other pods", name, got)
		}
	}
}

// scale sets the replicas and waits until exactly as many pods exist and are ready.
func (c *scene) scale(set string, replicas int32) {
	c.Helper()
	if _, err := c.kubectl(c.Context(), "scale", "statefulset", set, fmt.Sprintf("--replicas=%d", replicas)); err != nil {
		c.Fatal(err)
	}
	c.eventually(func() error {
		now, err := c.api.AppsV1().StatefulSets(c.namespace).Get(c.Context(), set, metav1.GetOptions{})
		if err == nil && (now.Status.Replicas != replicas || now.Status.ReadyReplicas != replicas) {
			err = fmt.Errorf("statefulset %s has %d pods, %d ready; want %d", set, now.Status.Replicas, now.Status.ReadyReplicas, replicas)
		}
		return err
	})
}

// A volume within a pod's definition lives as long as the pod.
func livesAndDiesWithItsPod(c *scene) {
	c.run(newPod("pod", writeFile("/scratch/file", "8m")+" && "+idle, withVolume("scratch", inlineVolume("32Mi"))))
	c.waitWritten("pod", "/scratch/file.sum")
	c.exec("pod", checkFile("/scratch/file"))
	if got := c.exec("pod", "df -m /scratch | awk 'END {print ($2 <= 32)}'"); got != "1" {
		c.Errorf("a volume of 32 MiB is larger: %s", c.exec("pod", "df -m /scratch"))
	}
	c.removePod("pod")
}

// The same with a generic ephemeral volume.
func isAClaimOfItsPod(c *scene) {
	claim := newClaim("", "64Mi")
	source := corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claim.Spec},
	}}
	c.run(newPod("pod", writeFile("/scratch/file", "8m")+" && "+idle, withVolume("scratch", source)))
	c.waitWritten("pod", "/scratch/file.sum")
	c.exec("pod", checkFile("/scratch/file"))
	volume := c.volumeOf("pod-scratch")
	c.removePod("pod")
	c.waitVolumeGone(volume)
}

// volumeOf is the name of the volume that a claim is bound to.
func (c *scene) volumeOf(claim string) string {
	c.Helper()
	now, err := c.getClaim(claim)
	if err != nil {
		c.Fatal(err)
	}
	if now.Status.Phase != corev1.ClaimBound {
		c.Fatalf("claim %s is %s", claim, now.Status.Phase)
	}
	return now.Spec.VolumeName
}

func (c *scene) waitVolumeGone(name string) {
	c.Helper()
	c.eventually(func() error { return c.volumesGone(c.Context(), map[string]bool{name: true}) })
}

// grows tests the expansion of a volume while a process writes to it.
func grows(filesystem string) func(*scene) {
	return func(c *scene) {
		c.makeClass(c.namespace, map[string]string{"csi.storage.k8s.io/fstype": filesystem})
		c.makeClaim(newClaim("data", "320Mi", inClass(c.namespace)))
		// It ends with the first write that fails.
		c.run(newPod("writer", "while dd if=/dev/urandom of=/data/file bs=64k count=64 conv=fsync; do echo >>/data/rounds; done", withClaim("data")))
		c.eventually(func() error { return c.rounds("writer", 1) })
		c.resize("data", "700Mi")
		if got := c.exec("writer", "df -m /data | awk 'END {print ($2 > 500)}'"); got != "1" {
			c.Errorf("the filesystem has not grown: %s", c.exec("writer", "df -m /data"))
		}
		done := c.exec("writer", "wc -l </data/rounds")
		c.eventually(func() error { return c.roundsAfter("writer", done) })
	}
}

// rounds returns an error until the writer of grows has done this many rounds.
func (c *scene) rounds(pod string, least int) error {
	_, err := c.kubectl(c.Context(), "exec", pod, "--", "sh", "-c", fmt.Sprintf("test $(wc -l </data/rounds) -ge %d", least))
	return err
}

func (c *scene) roundsAfter(pod, done string) error {
	_, err := c.kubectl(c.Context(), "exec", pod, "--", "sh", "-c", fmt.Sprintf("test $(wc -l </data/rounds) -gt %s", done))
	return err
}

// resize waits until the claim's status has the size.
func (c *scene) resize(claim, size string) {
	c.Helper()
	want := resource.MustParse(size)
	c.patchClaim(claim, fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, size))
	c.eventually(func() error {
		now, err := c.getClaim(claim)
		if err != nil {
			return err
		}
		have := now.Status.Capacity.Storage()
		// Status and conditions are written at different times.
		pending := slices.ContainsFunc(now.Status.Conditions, func(one corev1.PersistentVolumeClaimCondition) bool {
			return one.Type == corev1.PersistentVolumeClaimResizing || one.Type == corev1.PersistentVolumeClaimFileSystemResizePending
		})
		if have.Cmp(want) < 0 || pending {
			return fmt.Errorf("claim %s has %v, want %s; conditions %v", claim, have, size, now.Status.Conditions)
		}
		return nil
	})
}

// A volume becomes thick, and its file has all of its blocks.
func changesItsAttributes(c *scene) {
	c.makeAttributesClass(c.namespace, map[string]string{"provisioning": "thick"})
	c.makeClaim(newClaim("data", "64Mi"))
	node := c.run(newPod("pod", writeFile("/data/file", "8m")+" && "+idle, withClaim("data")))
	c.waitWritten("pod", "/data/file.sum")
	before, err := c.allocated(node, c.volumeOf("data"))
	if err != nil || before > 48<<20 {
		c.Fatalf("a thin volume of 64 MiB takes %d bytes, %v", before, err)
	}
	c.patchClaim("data", fmt.Sprintf(`{"spec":{"volumeAttributesClassName":%q}}`, c.namespace))
	c.waitAttributes("data", c.namespace)
	after, err := c.allocated(node, c.volumeOf("data"))
	if err != nil || after < 64<<20 {
		c.Errorf("a thick volume of 64 MiB takes %d bytes, %v", after, err)
	}
	c.exec("pod", checkFile("/data/file"))
}

// The pod must get an event that names the reason, not wait without one.
func refusesWhatCannotBe(c *scene) {
	c.makeClass(c.namespace, map[string]string{"provisioning": "generous"})
	c.makeClaim(newClaim("data", "64Mi", inClass(c.namespace)))
	c.makePod(newPod("pod", idle, withClaim("data")))
	c.waitEvent("data", "ProvisioningFailed", "provisioning")
}

var errNoEvent = errors.New("the event does not exist")

// waitEvent waits for an event of an object with a reason, and words in it.
func (c *scene) waitEvent(object, reason, words string) {
	c.Helper()
	begun := time.Now()
	c.eventually(func() error {
		text, err := c.kubectl(c.Context(), "get", "events", "--field-selector", "involvedObject.name="+object+",reason="+reason,
			"-o", `jsonpath={range .items[*]}{.message}{.note}{"\n"}{end}`)
		if err == nil && !strings.Contains(text, words) {
			err = fmt.Errorf("%w: %s of %s with %q; there is %q", errNoEvent, reason, object, words, text)
		}
		return err
	})
	c.Logf("event after %v", time.Since(begun).Round(time.Millisecond))
}
