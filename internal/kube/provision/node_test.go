package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func registered(node string) *storagev1.CSINode {
	return &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: driverName, NodeID: node, TopologyKeys: []string{"node"}}}},
	}
}

// onItsOwn makes a provisioner that works for one node. The driver in memory
// serves all nodes: it puts the volume where it is asked to.
func (w *world) onItsOwn(node string, change ...func(*cluster.Env, *Options)) (*Controller, func()) {
	scope := func(env *cluster.Env, o *Options) {
		env.Scope = cluster.Scope{Node: node, Segments: map[string]string{"node": node}}
		o.ImmediateOnNodes, o.BaseDelay = true, 30*time.Millisecond
	}
	return w.run(append([]func(*cluster.Env, *Options){scope}, change...)...)
}

func nodesWorld(t *testing.T, class *storagev1.StorageClass, nodes ...string) *world {
	w := newWorld(t, class)
	w.withTopology()
	w.Driver.Creation.Answer = func(request *csi.CreateVolumeRequest, volume *csi.Volume) {
		volume.AccessibleTopology = request.GetAccessibilityRequirements().GetPreferred()
	}
	for _, node := range nodes {
		w.Add(registered(node), machine(node))
	}
	return w
}

func TestNode_servesItsOwnClaims(t *testing.T) {
	w := nodesWorld(t, newClass(waitForConsumer), "n1", "n2")
	w.onItsOwn("n1")
	w.Add(newClaim("a", onNode("n1")), newClaim("b", onNode("n2")), newClaim("c"))
	pv := w.saved("pvc-uid-a")
	if !(cluster.Scope{Node: "n1", Segments: map[string]string{"node": "n1"}}).OwnsVolume(pv) {
		t.Errorf("affinity %v", pv.Spec.NodeAffinity)
	}
	w.Never(100*time.Millisecond, func() error {
		if len(w.calls()) > 1 {
			return fmt.Errorf("calls %v", w.calls())
		}
		return nil
	})
}

func TestNode_oneOfManyTakesAnImmediateClaim(t *testing.T) {
	nodes := []string{"n1", "n2", "n3", "n4"}
	w := nodesWorld(t, newClass(), nodes...)
	tries := map[string]int{}
	var mu sync.Mutex
	w.React("patch", "persistentvolumeclaims", func(q apiserver.Request) error {
		mu.Lock()
		defer mu.Unlock()
		tries[q.Name]++
		return nil
	})
	for _, node := range nodes {
		w.onItsOwn(node, func(_ *cluster.Env, o *Options) { o.BaseDelay = time.Minute })
	}
	const claims = 20
	for i := range claims {
		w.Add(newClaim(fmt.Sprint("c", i)))
	}
	w.complete(claims)
	mu.Lock()
	defer mu.Unlock()
	for claim, n := range tries {
		if n != 1 {
			t.Errorf("%d nodes tried to take %s", n, claim)
		}
	}
	where := map[string]int{}
	for i := range claims {
		where[selectedNode(w.claimNow(fmt.Sprint("c", i)))]++
	}
	if len(where) < 3 {
		t.Errorf("the claims crowd: %v", where)
	}
}

func TestNode_theNextTakesWhatTheFirstHasNoRoomFor(t *testing.T) {
	w := nodesWorld(t, newClass(), "n1", "n2")
	w.Driver.Controller = append(w.Driver.Controller, csi.ControllerServiceCapability_RPC_GET_CAPACITY)
	w.Driver.Capacity.Of = func(request *csi.GetCapacityRequest) *csi.GetCapacityResponse {
		if request.GetAccessibleTopology().GetSegments()["node"] == "n1" {
			return csidriver.Room(1<<20, -1)
		}
		return csidriver.Room(1<<40, -1)
	}
	w.onItsOwn("n1")
	w.onItsOwn("n2")
	for i := range 8 { // some of them are n1's first
		w.Add(newClaim(fmt.Sprint("c", i)))
	}
	w.complete(8)
	w.event(`node "n1" has room for 1048576 bytes`)
	for i := range 8 {
		if node := selectedNode(w.claimNow(fmt.Sprint("c", i))); node != "n2" {
			t.Errorf("c%d is on %s", i, node)
		}
	}
}

func TestNode_leavesAnImmediateClaimToTheNodesThatItsClassAllows(t *testing.T) {
	allowed := func(class *storagev1.StorageClass) {
		class.AllowedTopologies = []corev1.TopologySelectorTerm{{
			MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "node", Values: []string{"n2"}}},
		}}
	}
	w := nodesWorld(t, newClass(allowed), "n1", "n2")
	w.onItsOwn("n1")
	w.onItsOwn("n2")
	for i := range 8 { // some of them are n1's first
		w.Add(newClaim(fmt.Sprint("c", i)))
	}
	w.complete(8)
	for i := range 8 {
		if node := selectedNode(w.claimNow(fmt.Sprint("c", i))); node != "n2" {
			t.Errorf("c%d is on %s", i, node)
		}
	}
}

func TestNode_givesAClaimBackThatItCannotServe(t *testing.T) {
	w := nodesWorld(t, newClass(), "n1", "n2")
	w.mu.Lock()
	full := func(request *csi.CreateVolumeRequest) error {
		if request.GetAccessibilityRequirements().GetPreferred()[0].GetSegments()["node"] == "n1" {
			return csidriver.Fail(codes.ResourceExhausted, "full")
		}
		return nil
	}
	for range 100 {
		w.answers = append(w.answers, full)
	}
	w.mu.Unlock()
	w.onItsOwn("n1")
	w.onItsOwn("n2")
	for i := range 6 {
		w.Add(newClaim(fmt.Sprint("c", i)))
	}
	w.complete(6)
}

func TestNode_undoesWhatAnotherNodeWasChosenFor(t *testing.T) {
	w := nodesWorld(t, newClass(waitForConsumer), "n1", "n2")
	w.answer(csidriver.Fail(codes.DeadlineExceeded, "slow"))
	w.onItsOwn("n1", func(env *cluster.Env, _ *Options) { env.Retry.Start = 200 * time.Millisecond })
	w.Add(newClaim("a", onNode("n1")))
	w.event("Warning ProvisioningFailed ns/a", "slow")
	w.Put(newClaim("a", onNode("n2")))
	w.gone()
}

func TestNode_refusesAVolumeOfNoPlace(t *testing.T) {
	w := nodesWorld(t, newClass(waitForConsumer), "n1")
	w.Driver.Creation.Answer = nil
	w.onItsOwn("n1")
	w.Add(newClaim("a", onNode("n1")))
	w.event("Warning ProvisioningFailed ns/a", `is on node "n1"`)
	w.Eventually(func() error {
		if w.Driver.Count("DeleteVolume") == 0 {
			return errors.New("not deleted")
		}
		return nil
	})
}

func TestRank_oneNodeIsFirstForEachClaim(t *testing.T) {
	nodes := []string{"n1", "n2", "n3", "n4", "n5"}
	w := nodesWorld(t, newClass(), nodes...)
	controllers := map[string]*Controller{}
	for _, node := range nodes {
		controllers[node], _ = w.onItsOwn(node)
	}
	firsts := map[string]int{}
	for i := range 200 {
		uid := types.UID(fmt.Sprintf("3f9a-%d", i))
		var ranks []int
		for node, controller := range controllers {
			rank := controller.rank(uid)
			ranks = append(ranks, rank)
			if rank == 0 {
				firsts[node]++
			}
		}
		slices.Sort(ranks)
		if !slices.Equal(ranks, []int{0, 1, 2, 3, 4}) {
			t.Fatalf("ranks of %s: %v", uid, ranks)
		}
	}
	if least := slices.Min(slices.Collect(maps.Values(firsts))); len(firsts) != len(nodes) || least < 15 {
		t.Errorf("of 200 claims, first: %v", firsts)
	}
}

func TestTurn_growsWithTheLogarithmOfTheRank(t *testing.T) {
	w := nodesWorld(t, newClass(), "n1")
	c, _ := w.onItsOwn("n1", func(_ *cluster.Env, o *Options) { o.BaseDelay = 2 * time.Second })
	for rank, want := range map[int]time.Duration{0: 0, 1: 2, 2: 4, 3: 4, 4: 6, 30: 10, 5000: 26} {
		if got := c.delay(rank); got != want*time.Second {
			t.Errorf("rank %d waits %v, want %v", rank, got, want*time.Second)
		}
	}
}

func TestNode_aClaimThatChangesAllTheTimeGetsItsTurn(t *testing.T) {
	w := nodesWorld(t, newClass(), "n1", "n2") // n1 is down
	w.onItsOwn("n2", func(_ *cluster.Env, o *Options) { o.BaseDelay = 100 * time.Millisecond })
	w.Add(newClaim("c0"), newClaim("c1"), newClaim("c2"), newClaim("c3"))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for n := 0; ctx.Err() == nil; n++ {
			for i := range 4 {
				patch := fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, n)
				_, _ = w.Core.CoreV1().PersistentVolumeClaims("ns").
					Patch(ctx, fmt.Sprint("c", i), types.MergePatchType, patch, metav1.PatchOptions{})
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	w.complete(4)
}
