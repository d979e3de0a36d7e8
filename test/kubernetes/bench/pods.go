package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// localClass is the chart's class for the backend local.
	localClass = "holdfast-local"
	// podTimeout is for one pod.
	podTimeout = 2 * time.Minute
	// podImage is one of the cluster's own images that only waits.
	podImage = "docker.io/library/busybox:latest"
)

// install installs the driver with the chart's defaults.
func (b *bench) install(ctx context.Context) error {
	if err := b.cluster.ImportImage(ctx, b.s.image); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, b.s.helm, "install", "holdfast", b.s.chart, "--kubeconfig="+b.cluster.Kubeconfig,
		"--namespace=holdfast-system", "--create-namespace", "--wait", "--timeout=3m",
		"--set-string=image.repository="+b.s.repository, "--set-string=image.tag="+b.s.tag)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("install the chart: %w: %s", err, output)
	}
	return nil
}

// container returns the usage of the driver's process on a node, the only process of
// the chart there.
func (b *bench) container(ctx context.Context, node string) (used, error) {
	text, err := b.cluster.OnNode(ctx, node, "pgrep", "--exact", "holdfast")
	if err != nil {
		return used{}, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return used{}, fmt.Errorf("one process holdfast on %s: %w", node, err)
	}
	return usage(pid, func(path string) ([]byte, error) {
		text, err := b.cluster.OnNode(ctx, node, "cat", path)
		return []byte(text), err
	})
}

// idleContainer waits for the idle time and returns the usage of the first node's container.
func (b *bench) idleContainer(ctx context.Context) (used, error) {
	select {
	case <-ctx.Done():
		return used{}, ctx.Err()
	case <-time.After(b.s.idleTime):
		return b.container(ctx, b.cluster.Nodes[0])
	}
}

// measurePods measures the driver's container, and compares pods with its volumes and
// pods with an emptyDir.
func measurePods(ctx context.Context, s settings) ([]row, error) {
	return on(ctx, s, func(ctx context.Context, b *bench) ([]row, error) {
		if err := b.install(ctx); err != nil {
			return nil, err
		}
		idle, err := b.idleContainer(ctx)
		if err != nil {
			return nil, err
		}
		rows := []row{{work: "node container, backend local: driver and controllers, idle", holdfast: idle.memory(), aim: "≤ 45 MiB"}}
		var times [3][]time.Duration
		for i := range s.pods {
			for kind, volume := range volumes(i) {
				took, err := b.pod(ctx, fmt.Sprintf("pod-%d-%d", i, kind), volume)
				if err != nil {
					return nil, err
				}
				times[kind] = append(times[kind], took)
			}
		}
		empty, fresh, inline := median(times[0]), median(times[1]), median(times[2])
		busy, err := b.container(ctx, b.cluster.Nodes[0])
		if err != nil {
			return nil, err
		}
		return append(rows,
			row{work: "— after that many pods", holdfast: busy.memory()},
			row{"pod creation to Running, fresh ext4 volume, claim made with the pod", seconds(fresh), "the same with an emptyDir", seconds(empty), ratio(float64(fresh), float64(empty)), ""},
			row{"pod creation to Running, inline volume", seconds(inline), "the same with an emptyDir", seconds(empty), ratio(float64(inline), float64(empty)), ""},
		), nil
	})
}

// volumes are the kinds that are compared.
func volumes(i int) []corev1.VolumeSource {
	class := localClass
	return []corev1.VolumeSource{
		{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}},
			},
		}}},
		{CSI: &corev1.CSIVolumeSource{Driver: "local.holdfast.dev", VolumeAttributes: map[string]string{"size": "64Mi"}}},
	}
}

// pod starts a pod, waits until it is Running, and deletes it until it is gone.
func (b *bench) pod(ctx context.Context, name string, volume corev1.VolumeSource) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	pods := b.client.CoreV1().Pods(namespace)
	running, err := follow(ctx, of(pods), func(o metav1.Object, gone bool) bool {
		pod, ok := o.(*corev1.Pod)
		return ok && pod.Name == name && !gone && pod.Status.Phase == corev1.PodRunning
	})
	if err != nil {
		return 0, err
	}
	ended, err := follow(ctx, of(pods), func(o metav1.Object, gone bool) bool { return gone && o.GetName() == name })
	if err != nil {
		return 0, err
	}
	var grace int64
	begun := time.Now()
	_, err = pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "main", Image: podImage, ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "3600"},
				VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: volume}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	if err := running.await(ctx, 1); err != nil {
		return 0, fmt.Errorf("pod %s does not run: %w", name, err)
	}
	took = time.Since(begun)
	if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return 0, err
	}
	if err := ended.await(ctx, 1); err != nil {
		return 0, fmt.Errorf("pod %s does not end: %w", name, err)
	}
	return took, nil
}
