package provision

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

// TestDelete_manyShareTheListOfVolumesWithoutANode: the list has the PersistentVolumes of
// all other drivers, and each deletion must read it after it was decided.
func TestDelete_manyShareTheListOfVolumesWithoutANode(t *testing.T) {
	const deletions = 20
	w := newWorld(t, newClass())
	labelled := func(pv *corev1.PersistentVolume) { pv.Labels = map[string]string{claim.NodeLabel: "n1"} }
	for i := range deletions {
		w.Driver.AddVolume("id-pvc-uid-"+fmt.Sprint(i), 1)
		w.Add(newVolume(fmt.Sprint(i), at("n1"), labelled))
	}
	var counting atomic.Bool
	var read, lists atomic.Int64
	all := make(chan struct{})
	release := sync.OnceFunc(func() { close(all) })
	t.Cleanup(release)
	w.React("get", "persistentvolumes", func(apiserver.Request) error { read.Add(1); return nil })
	w.React("list", "persistentvolumes", func(q apiserver.Request) error {
		if counting.Load() && q.Process != "" {
			lists.Add(1)
			<-all
		}
		return nil
	})
	w.run(labelledOnNode("n1"), func(env *cluster.Env, _ *Options) { env.Workers = 2 * deletions })
	counting.Store(true)
	for i := range deletions {
		w.Put(newVolume(fmt.Sprint(i), at("n1"), labelled, released))
	}
	w.Eventually(func() error {
		if begun := read.Load(); begun < deletions {
			return fmt.Errorf("%d deletions have begun, %d lists were sent", begun, lists.Load())
		}
		return nil
	})
	release()
	w.gone()
	if n := lists.Load(); n == 0 || n > deletions/2 {
		t.Errorf("%d deletions at once listed the PersistentVolumes %d times", deletions, n)
	}
}
