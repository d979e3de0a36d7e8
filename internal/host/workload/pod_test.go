package workload

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestExpand(t *testing.T) {
	values := map[string]string{"A": "1", "B": "$(A)"}
	cases := []struct{ text, want string }{
		{"", ""}, {"plain", "plain"}, {"$(A)", "1"}, {"x$(A)y$(A)", "x1y1"}, {"$(C)", "$(C)"}, {"$$(A)", "$(A)"},
		{"$$$(A)", "$1"}, {"$A", "$A"}, {"$(A", "$(A"}, {"$", "$"}, {"$(B)", "$(A)"}, {"$()", "$()"}, {"5$", "5$"},
	}
	for _, c := range cases {
		if got := expand(c.text, values); got != c.want {
			t.Errorf("%q gives %q, want %q", c.text, got, c.want)
		}
	}
}

func ptr[T any](value T) *T { return &value }

func testPod(change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "uid", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Command: []string{"cat"}}}},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

func TestFromPod_translates(t *testing.T) {
	pod := testPod(func(p *corev1.Pod) {
		p.Spec.TerminationGracePeriodSeconds = ptr(int64(5))
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr(int64(10)), RunAsGroup: ptr(int64(11)), FSGroup: ptr(int64(12)), SupplementalGroups: []int64{13}}
		c := &p.Spec.Containers[0]
		c.Args, c.WorkingDir = []string{"$(WHO)", "$(NOBODY)"}, "/tmp"
		c.Env = []corev1.EnvVar{
			{Name: "WHO", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['app']"}}},
			{Name: "PATH", Value: "/x:$(PATH)"},
			{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
		}
		c.SecurityContext = &corev1.SecurityContext{
			RunAsUser: ptr(int64(20)), AllowPrivilegeEscalation: ptr(false), ReadOnlyRootFilesystem: ptr(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"all"}, Add: []corev1.Capability{"CAP_CHOWN"}},
		}
		c.VolumeMounts = []corev1.VolumeMount{{Name: "fs", MountPath: "/data/", SubPath: "a"}, {Name: "ro", MountPath: "/ro"}}
		c.VolumeDevices = []corev1.VolumeDevice{{Name: "raw", DevicePath: "/dev/x"}}
	})
	got, err := FromPod(pod, Sources{Volumes: map[string]Volume{"fs": {Path: "/p/fs"}, "ro": {Path: "/p/ro", ReadOnly: true}, "raw": {Path: "/p/raw", Block: true}}, Node: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	want := Container{
		Name: "main", Command: []string{"cat", "web", "$(NOBODY)"}, Directory: "/tmp",
		Env: []string{"PATH=/x:" + defaultPath, "HOME=/", "HOSTNAME=p", "WHO=web", "NODE=node-1"},
		Mounts: []Mount{
			{Source: "/p/fs", SubPath: "a", Target: "/data"}, {Source: "/p/ro", Target: "/ro", ReadOnly: true}, {Source: "/p/raw", Target: "/dev/x", Device: true},
		},
		UID: 20, GID: 11, Groups: []uint32{13, 12}, NoNewPrivs: true, ReadOnlyRoot: true,
		DropAll: true, DropCaps: []string{"ALL"}, KeepCaps: []string{"CHOWN"}, GracePeriod: 5 * time.Second,
	}
	if difference := cmp.Diff([]Container{want}, got.Main); difference != "" {
		t.Error(difference)
	}
}

func TestFromPod_refuses(t *testing.T) {
	cases := []struct {
		name   string
		change func(*corev1.Container)
		want   string
	}{
		{"no command", func(c *corev1.Container) { c.Command = nil }, `container "main": command: needed here`},
		{"root where it must not be", func(c *corev1.Container) { c.SecurityContext = &corev1.SecurityContext{RunAsNonRoot: ptr(true)} }, "runAsNonRoot is true"},
		{"a block device as a directory", func(c *corev1.Container) {
			c.VolumeMounts = []corev1.VolumeMount{{Name: "raw", MountPath: "/d"}}
		}, `volumeMounts[0]: volume "raw" is a block device; use volumeDevices`},
		{"a directory as a block device", func(c *corev1.Container) {
			c.VolumeDevices = []corev1.VolumeDevice{{Name: "fs", DevicePath: "/d"}}
		}, `volumeDevices[0]: volume "fs" is a filesystem; use volumeMounts`},
		{"a volume that is not there", func(c *corev1.Container) {
			c.VolumeMounts = []corev1.VolumeMount{{Name: "x", MountPath: "/d"}}
		}, `the pod has no volume "x"`},
		{"a field of the pod that is not known", func(c *corev1.Container) {
			c.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
		}, `env[0] (A): valueFrom.fieldRef.fieldPath: "status.podIP" is not supported`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := FromPod(testPod(func(p *corev1.Pod) { c.change(&p.Spec.Containers[0]) }), Sources{Volumes: map[string]Volume{"fs": {}, "raw": {Block: true}}, Node: "n"})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
