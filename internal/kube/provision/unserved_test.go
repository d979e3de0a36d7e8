package provision

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/intent"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// TestUnserved_countsIntentsThatCannotBeRead: a damaged intent of a lost node may
// stand for a volume, and must not stop the processes of all other nodes.
func TestUnserved_countsIntentsThatCannotBeRead(t *testing.T) {
	w := nodesWorld(t, newClass(), "n1", "n2")
	w.Add(damagedIntents("lost"), damagedIntents("n2"))
	c, _ := w.onItsOwn("n1")
	w.Eventually(func() error {
		if n := c.unserved.count.Load(); n != 2 {
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
			if n := c.unserved.count.Load(); n != 1 {
				return fmt.Errorf("node %s counts %d unserved intents", node, n)
			}
			return nil
		})
	}
	w.event("Warning ProvisioningFailed ns/a", `volume "pvc-uid-a" was being created by node "lost"`, "start it again", "remove entry uid-a of ConfigMap "+intent.Prefix(driverName, "lost"))
	told := 0
	for _, event := range w.Events() {
		if strings.Contains(event, "was being created by") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d events of two nodes", told)
	}
}

// TestUnserved_countsAnIntentOfOnlyOneNodeAfterAnHour: another node than the one that
// counts completes it when it starts, as its place or its instance of the driver shows.
func TestUnserved_countsAnIntentOfOnlyOneNodeAfterAnHour(t *testing.T) {
	onlyN2 := func(_ *cluster.Env, o *Options) {
		o.Topology = places{segments: map[string]string{csidriver.TopologyKey: "n2"}}
	}
	for name, c := range map[string]struct {
		instance string
		as       func(*cluster.Env, *Options)
		soon     int64 // how many are counted at once
	}{
		"one place":                         {"", onlyN2, 0},
		"several places, one instance":      {"n2", anywhere, 0},
		"several places, without a node ID": {"", anywhere, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := nodesWorld(t, newClass(), "n1", "n2")
			w.crashAs("create/called", func(env *cluster.Env, o *Options) {
				env.DriverNode = c.instance
				c.as(env, o)
			}, func() { w.Add(newClaim("a")) })
			controller, _ := w.run(w.withInstance("n1", onNodes("n1")))
			count := func() int64 {
				served := func(node string) (bool, error) { return controller.nodeServed(t.Context(), node) }
				if err := controller.unserved.report(t.Context(), served); err != nil {
					t.Fatal(err)
				}
				return controller.unserved.count.Load()
			}
			if n := count(); n != c.soon {
				t.Errorf("%d unserved intents at once, want %d", n, c.soon)
			}
			w.changeIntents(func(text string) string {
				return regexp.MustCompile(`"since":"[^"]*"`).ReplaceAllString(text, `"since":"2001-02-03T04:05:06Z"`)
			})
			if n := count(); n != 1 {
				t.Errorf("%d unserved intents after an hour", n)
			}
		})
	}
}

// changeIntents changes every stored intent.
func (w *world) changeIntents(change func(text string) string) {
	w.t.Helper()
	client := w.Core.CoreV1().ConfigMaps(apiserver.Intents)
	list, err := client.List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range list.Items {
		for key, text := range list.Items[i].Data {
			list.Items[i].Data[key] = change(text)
		}
		if _, err := client.Update(w.Context(), &list.Items[i], metav1.UpdateOptions{}); err != nil {
			w.t.Fatal(err)
		}
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
