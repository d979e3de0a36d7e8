package drain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const (
	driver = "ebs.csi.aws.com"
	own    = "one"
)

func node(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: own}}
	for _, f := range change {
		f(n)
	}
	return n
}

func unschedulable(n *corev1.Node) { n.Spec.Unschedulable = true }

func tainted(key string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}
	}
}

func attachment(name, attacher, node string) *storagev1.VolumeAttachment {
	volume := "pv-" + name
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: attacher, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
	}
}

// wait starts a wait; its error comes over the channel.
func wait(c *apiserver.Cluster) <-chan error {
	done := make(chan error, 1)
	go func() {
		done <- Wait(c.Context(), Options{Client: c.Env.Core, Node: own, Driver: driver, Logger: slog.New(slog.DiscardHandler)})
	}()
	return done
}

func finishes(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for ever")
	}
}

func goesOn(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("it ended: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
}

// A driver that is replaced on a node in use must end at once.
func TestWait_returnsOnANodeThatIsNotDrained(t *testing.T) {
	for _, n := range []*corev1.Node{node(), node(tainted("dedicated")), node(tainted(corev1.TaintNodeNotReady))} {
		c := apiserver.New(t, csidriver.New(driver), n, attachment("a", driver, own))
		finishes(t, wait(c))
	}
}

// Each way in which Kubernetes or an autoscaler marks a node for removal.
func TestWait_onADrainedNodeWaitsForItsLastVolume(t *testing.T) {
	nodes := map[string]*corev1.Node{"gone": nil, "cordoned": node(unschedulable)}
	for _, key := range []string{"node.kubernetes.io/unschedulable", "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"} {
		nodes[key] = node(tainted(key))
	}
	for what, n := range nodes {
		t.Run(what, func(t *testing.T) {
			c := apiserver.New(t, csidriver.New(driver), attachment("a", driver, own), attachment("b", driver, own),
				attachment("c", driver, "two"), attachment("d", "efs.csi.aws.com", own))
			if n != nil {
				c.Add(n)
			}
			done := wait(c)
			goesOn(t, done)
			c.Delete(attachment("b", driver, own))
			c.Delete(attachment("c", driver, "two"))
			goesOn(t, done)
			c.Delete(attachment("a", driver, own))
			finishes(t, done)
		})
	}
}

func TestWait_returnsWithoutAttachments(t *testing.T) {
	finishes(t, wait(apiserver.New(t, csidriver.New(driver), node(unschedulable), attachment("a", driver, "two"))))
}

func TestWait_waitsForNewAttachments(t *testing.T) {
	c := apiserver.New(t, csidriver.New(driver), node(unschedulable), attachment("a", driver, own))
	done := wait(c)
	goesOn(t, done)
	c.Add(attachment("late", driver, own))
	c.Delete(attachment("a", driver, own))
	goesOn(t, done)
	c.Delete(attachment("late", driver, own))
	finishes(t, done)
}

// In a large cluster, Wait lists once, in pages, and watches once; changes of other
// nodes' attachments cost no request.
func TestWait_listsOnceInPagesAndWatchesOnce(t *testing.T) {
	const others = 600
	objects := []runtime.Object{node(unschedulable), attachment("a", driver, own), attachment("z", driver, own)}
	for i := range others {
		objects = append(objects, attachment(fmt.Sprintf("other-%04d", i), driver, fmt.Sprintf("node-%d", i)))
	}
	c := apiserver.New(t, csidriver.New(driver), objects...)
	var mu sync.Mutex
	asked := map[string]int{}
	c.React("*", "volumeattachments", func(q apiserver.Request) error {
		mu.Lock()
		defer mu.Unlock()
		asked[q.Verb]++
		return nil
	})
	done := wait(c)
	c.Eventually(func() error {
		mu.Lock()
		defer mu.Unlock()
		if asked["watch"] == 0 {
			return errors.New("nothing is watched")
		}
		return nil
	})
	for i := range 100 {
		c.Put(attachment(fmt.Sprintf("other-%04d", i), driver, "elsewhere"))
	}
	c.Delete(attachment("a", driver, own))
	c.Delete(attachment("z", driver, own))
	finishes(t, done)
	mu.Lock()
	defer mu.Unlock()
	if asked["list"] != 2 || asked["watch"] != 1 || len(asked) != 2 {
		t.Errorf("it asked for %v; want 2 pages of a list and a watch", asked)
	}
}

func TestWait_continuesAfterTheEndOfAWatch(t *testing.T) {
	c := apiserver.New(t, csidriver.New(driver), node(unschedulable), attachment("a", driver, own))
	done := wait(c)
	goesOn(t, done)
	c.BreakWatches()
	c.Delete(attachment("a", driver, own))
	finishes(t, done)
}

// The kubelet kills a hook that does not end in time; without this error its log would
// not name the reason.
func TestWait_endsInTimeAndNamesTheAttachedVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		began := time.Now()
		clients := fake.NewClientset(node(unschedulable), attachment("a", driver, own), attachment("b", driver, own))
		err := Wait(ctx, Options{Client: apiserver.Narrow(clients), Node: own, Driver: driver, Logger: slog.New(slog.DiscardHandler)})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "pv-a, pv-b") || time.Since(began) != 15*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestWait_retriesWhileTheAPIServerIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients := fake.NewClientset(node())
		began := time.Now()
		clients.PrependReactor("list", "nodes", func(kubetesting.Action) (bool, runtime.Object, error) {
			return time.Since(began) < 10*time.Second, nil, apierrors.NewServiceUnavailable("etcd is down")
		})
		if err := Wait(t.Context(), Options{Client: apiserver.Narrow(clients), Node: own, Driver: driver, Logger: slog.New(slog.DiscardHandler)}); err != nil || time.Since(began) > 20*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
