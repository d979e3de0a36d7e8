package cli

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func attached(volume, node string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-" + volume},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: "ebs.csi.aws.com", NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
	}
}

func preStop(t *testing.T, arguments ...string) (code int, said string) {
	t.Helper()
	var output bytes.Buffer
	code = Run(t.Context(), "test", arguments, &output, &output)
	return code, output.String()
}

func TestPreStop_endsAtOnceOnANodeThatStays(t *testing.T) {
	c := apiserver.New(t, csidriver.New("ebs.csi.aws.com"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, attached("data", "one"))
	for _, name := range []string{"pre-stop", "pre-stop-hook"} {
		if code, said := preStop(t, name, "--kubeconfig="+c.Kubeconfig(), "--node-name=one"); code != exitDone {
			t.Errorf("%s ends with %d: %s", name, code, said)
		}
	}
}

func TestPreStop_namesTheVolumesOfANodeThatIsNotEmptiedInTime(t *testing.T) {
	t.Setenv("CSI_NODE_NAME", "one") // as the reference driver's pods have it
	c := apiserver.New(t, csidriver.New("ebs.csi.aws.com"), attached("data", "one"), attached("other", "two"))
	code, said := preStop(t, "pre-stop", "--kubeconfig="+c.Kubeconfig(), "--timeout=300ms")
	if code != exitFailed || !strings.Contains(said, "still attached to node one: data:") {
		t.Errorf("it ends with %d: %s", code, said)
	}
}

func TestPreStop_needsTheNameOfTheNode(t *testing.T) {
	if code, said := preStop(t, "pre-stop"); code != exitUsage || !strings.Contains(said, "--node-name") {
		t.Errorf("it ends with %d: %s", code, said)
	}
}
