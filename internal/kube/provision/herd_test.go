package provision

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
)

// herd is how many nodes act for themselves in these tests.
const herd = 12

// herdWorld is a cluster of nodes, each with a provisioner. asked counts the
// requests of a verb for a kind.
func herdWorld(t *testing.T, prepare func(*world)) (w *world, asked func(verb, resource string) *atomic.Int32) {
	var nodes []string
	for i := range herd {
		nodes = append(nodes, fmt.Sprintf("n%d", i))
	}
	w = nodesWorld(t, newClass(), nodes...)
	prepare(w)
	for _, node := range nodes {
		w.onItsOwn(node, withSnapshots)
	}
	return w, func(verb, resource string) *atomic.Int32 {
		count := &atomic.Int32{}
		w.React(verb, resource, func(apiserver.Request) error { count.Add(1); return nil })
		return count
	}
}

// TestHerd_aPendingImmediateClaimCostsNoRequests: no node has room, and each
// finds that out without the API server.
func TestHerd_aPendingImmediateClaimCostsNoRequests(t *testing.T) {
	var questions atomic.Int32
	w, asked := herdWorld(t, func(w *world) {
		w.Driver.Controller = append(w.Driver.Controller, csi.ControllerServiceCapability_RPC_GET_CAPACITY)
		w.Driver.Capacity.Of = func(*csi.GetCapacityRequest) *csi.GetCapacityResponse {
			questions.Add(1)
			return &csi.GetCapacityResponse{}
		}
	})
	reads := asked("get", "persistentvolumeclaims")
	w.Add(newClaim("a"))
	w.Eventually(func() error {
		if n := questions.Load(); n < herd {
			return fmt.Errorf("%d nodes have asked for room", n)
		}
		return nil
	})
	if n := reads.Load(); n != 0 {
		t.Errorf("the claim was read %d times", n)
	}
}

func TestHerd_oneNodeTellsOfAMissingClass(t *testing.T) {
	w, _ := herdWorld(t, func(*world) {})
	pvc := newClaim("a")
	pvc.Spec.StorageClassName = ptr("nope")
	w.Add(pvc)
	w.event("Warning ProvisioningFailed ns/a", `"nope" not found`)
	w.Never(200*time.Millisecond, func() error {
		told := 0
		for _, event := range w.Events() {
			if strings.Contains(event, "not found") {
				told++
			}
		}
		if told > 1 {
			return fmt.Errorf("told %d times", told)
		}
		return nil
	})
}

// TestHerd_aRestoreIsReadByTheNodeOfItsSnapshot: the others know from their cache
// that it is not theirs, before and when the source is let go.
func TestHerd_aRestoreIsReadByTheNodeOfItsSnapshot(t *testing.T) {
	w, asked := herdWorld(t, func(w *world) {
		w.Driver.Controller = append(w.Driver.Controller, csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT)
		w.Driver.Creation.Strict = false
	})
	w.controllerManager()
	snapshot, content := newSnapshot("snap")
	content.Labels = map[string]string{claim.ManagedByLabel: "n3"}
	reads, patches := asked("get", "volumesnapshotcontents"), asked("patch", "volumesnapshots")
	w.Add(snapshot, content, newClaim("a", restoreOf("snap")))
	w.saved("pvc-uid-a")
	w.Eventually(func() error {
		if has(w.snapshotNow("snap").Finalizers, lifecycle.RestoreFinalizer) || patches.Load() < 2 {
			return errors.New("the snapshot is still protected")
		}
		return nil
	})
	if n := reads.Load(); n > 4 {
		t.Errorf("its content was read %d times", n)
	}
}
