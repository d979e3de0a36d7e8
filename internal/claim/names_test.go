package claim

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const podUID = types.UID("11111111-2222-3333-4444-555555555555")

func TestNames_areThoseOfKubernetes(t *testing.T) {
	cases := []struct{ name, got, want string }{
		{"volume", VolumeName("0f90c726"), "pvc-0f90c726"},
		// sha256 of the two texts put together, checked with sha256sum(1).
		{"inline handle", InlineHandle(podUID, "scratch"), "csi-a46bec53679aafe7e6bc42077f33be9e5c533643ed1224b3bfbf2dd627bbf53c"},
		{"attachment", AttachmentName("vol-1", "local.holdfast.dev", "node-1"), "csi-3507cc56900f7c03c4f41463310959bba66d6cfbed9c611c886096b1fb34b541"},
		{"generic ephemeral claim", EphemeralClaimName("a-b", "c"), "a-b-c"},
		{"unique name", UniqueName("d", "h"), "kubernetes.io/csi/d^h"},
		{"unique inline name", UniqueInlineName(podUID, "scratch"), "kubernetes.io/csi/11111111-2222-3333-4444-555555555555-scratch"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.got != c.want {
				t.Errorf("got %s, want %s", c.got, c.want)
			}
		})
	}
}

func TestSanitise_isThatOfTheUpstreamSidecars(t *testing.T) {
	cases := map[string]string{
		"local.holdfast.dev": "local-holdfast-dev",
		"ebs.csi.aws.com":    "ebs-csi-aws-com",
		"Mixed-Case9":        "Mixed-Case9",
		"ends.":              "ends-X",
		"ends-":              "ends-X",
		"zwei.größe":         "zwei-gr--e", // a rune, not a byte, becomes one '-'
		"":                   "",
	}
	for driver, want := range cases {
		if got := Sanitise(driver); got != want {
			t.Errorf("Sanitise(%q) = %q, want %q", driver, got, want)
		}
	}
}

func TestPaths_areTheKubelets(t *testing.T) {
	paths := Paths{Root: "/var/lib/kubelet"}
	cases := []struct{ name, got, want string }{
		{"registry", paths.Registry(), "/var/lib/kubelet/plugins_registry"},
		{"driver", paths.Driver("d.example"), "/var/lib/kubelet/plugins/d.example"},
		{"staging", paths.Staging("d.example", "h"), "/var/lib/kubelet/plugins/kubernetes.io/csi/d.example/aaa9402664f1a41f40ebbc52c9993eb66aeb366602958fdfaa283b71e64db123/globalmount"},
		{"publish", paths.Publish(podUID, "pvc-1"), "/var/lib/kubelet/pods/11111111-2222-3333-4444-555555555555/volumes/kubernetes.io~csi/pvc-1/mount"},
		{"publish with a slash", paths.Publish(podUID, "a/b"), "/var/lib/kubelet/pods/11111111-2222-3333-4444-555555555555/volumes/kubernetes.io~csi/a~b/mount"},
		{"block staging", paths.BlockStaging("pvc-1"), "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/staging/pvc-1"},
		{"block publish", paths.BlockPublish("pvc-1", podUID), "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-1/11111111-2222-3333-4444-555555555555"},
		{"empty dir", paths.EmptyDir(podUID, "tmp"), "/var/lib/kubelet/pods/11111111-2222-3333-4444-555555555555/volumes/kubernetes.io~empty-dir/tmp"},
		{"container", paths.Container(podUID, "main"), "/var/lib/kubelet/pods/11111111-2222-3333-4444-555555555555/containers/main"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.got != filepath.FromSlash(c.want) {
				t.Errorf("got %s, want %s", c.got, c.want)
			}
		})
	}
}

func TestOwnsEphemeralClaim_onlyByUID(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: podUID}}
	owned := func(uid types.UID, controller bool) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: "p", UID: uid, Controller: &controller}},
		}}
	}
	cases := []struct {
		name string
		pvc  *corev1.PersistentVolumeClaim
		want bool
	}{
		{"made for it", owned(podUID, true), true},
		{"made for a pod of the same name before", owned("other", true), false},
		{"owned but not controlled", owned(podUID, false), false},
		{"of no pod", &corev1.PersistentVolumeClaim{}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := OwnsEphemeralClaim(pod, c.pvc); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
