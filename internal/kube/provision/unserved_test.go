package provision

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/intent"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

// TestUnserved_countsIntentsThatCannotBeRead: a damaged intent of a lost node may
// stand for a volume, and must not stop the processes of all other nodes.
func TestUnserved_countsIntentsThatCannotBeRead(t *testing.T) {
	w := nodesWorld(t, newClass(), "n1", "n2")
	w.Add(damagedIntents("lost"), damagedIntents("n2"))
	c, _ := w.onItsOwn("n1")
	w.Eventually(func() error {
		if n := c.unserved.Load(); n != 2 {
			return fmt.Errorf("%d unserved intents, want the two of the lost node", n)
		}
		return nil
	})
	w.Add(newClaim("a"))
	w.saved("pvc-uid-a")
}

// TestUnserved_theClaimSaysWhatToDo: one node of all writes the event.
func TestUnserved_theClaimSaysWhatToDo(t *testing.T) {
	w := nodesWorld(t, newClass(waitForConsumer), "n1", "n2")
	w.crashAs("create/called", onNodes("lost"), func() { w.Add(newClaim("a", onNode("lost"))) })
	for _, node := range []string{"n1", "n2"} {
		c, _ := w.onItsOwn(node)
		w.Eventually(func() error {
			if n := c.unserved.Load(); n != 1 {
				return fmt.Errorf("node %s counts %d unserved intents", node, n)
			}
			return nil
		})
	}
	w.event("Warning ProvisioningFailed ns/a", `volume "pvc-uid-a" was being made by node "lost"`, "bring it back", "remove entry uid-a of ConfigMap "+intent.Prefix(driverName, "lost"))
	told := 0
	for _, event := range w.Events() {
		if strings.Contains(event, "was being made by") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d events of two nodes", told)
	}
}

func damagedIntents(node string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: apiserver.Intents, Name: intent.Prefix(driverName, node) + "0",
			Labels:      map[string]string{"holdfast.dev/intents": "of-another-store"},
			Annotations: map[string]string{"holdfast.dev/driver": driverName, "holdfast.dev/node": node},
		},
		Data: map[string]string{"uid-1": "{}", "uid-2": "no JSON"},
	}
}
