package host_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/test/otlp"
)

// receive serves OTLP, and points the processes that the test starts to it.
func receive(t *testing.T) *otlp.Receiver {
	t.Helper()
	r := otlp.Receive(t, "127.0.0.1:0")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+r.Address)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50") // milliseconds
	return r
}

const aTracedPod = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: traced}
provisioner: local.holdfast.dev
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  storageClassName: traced
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 64Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: traced}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    command: [sleep, infinity]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`

// TestTraces_ofAClaimAndAMount: the host and its driver export them over OTLP. The mount of a
// pod is one trace of both, down to the driver's steps.
func TestTraces_ofAClaimAndAMount(t *testing.T) {
	traces := receive(t)
	m := newMachine(t)
	m.start()
	m.apply(aTracedPod)
	m.until("the pod runs", limitOfTest, func() bool {
		pod := get[*corev1.Pod](m, "pods", "default", "traced")
		return pod != nil && pod.Status.Phase == corev1.PodRunning
	})
	contains := func(root string, want ...string) {
		t.Helper()
		m.until(fmt.Sprintf("the trace %q has %q", root, want), limitOfTest, func() bool {
			return within(want, traces.Tree(root))
		})
	}
	contains("create", "holdfast-host create", "  holdfast-host csi.v1.Controller/CreateVolume",
		"    holdfast-driver csi.v1.Controller/CreateVolume", "      holdfast-driver create")
	contains("mount", "holdfast-host mount", "  holdfast-host attempt",
		"    holdfast-host stage", "      holdfast-host csi.v1.Node/NodeStageVolume",
		"        holdfast-driver csi.v1.Node/NodeStageVolume", "          holdfast-driver stage",
		"            holdfast-driver device", "            holdfast-driver format", "            holdfast-driver mount",
		"    holdfast-host publish", "      holdfast-host csi.v1.Node/NodePublishVolume", "        holdfast-driver csi.v1.Node/NodePublishVolume")
	m.clear([]string{"traced"}, []string{"data"})
	contains("delete", "holdfast-host delete", "  holdfast-host csi.v1.Controller/DeleteVolume")
	for _, span := range traces.All() {
		if span.GetName() == "mount" && len(span.GetParentSpanId()) == 0 && otlp.Value(span.GetAttributes(), "k8s.pod.name") != "traced" {
			t.Errorf("the mount has the attributes %v", span.GetAttributes())
		}
	}
}

// within reports whether the lines occur in this order.
func within(want, lines []string) bool {
	for _, line := range lines {
		if len(want) > 0 && line == want[0] {
			want = want[1:]
		}
	}
	return len(want) == 0
}
