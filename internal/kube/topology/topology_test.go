package topology_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/topology"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

const driver = "test.example.com"

func node(name string, pairs ...string) *corev1.Node {
	n := &corev1.Node{}
	n.Name, n.Labels = name, map[string]string{"kubernetes.io/hostname": name}
	for i := 0; i < len(pairs); i += 2 {
		n.Labels[pairs[i]] = pairs[i+1]
	}
	return n
}

func csiNode(name, driver string, keys ...string) *storagev1.CSINode {
	n := &storagev1.CSINode{}
	n.Name = name
	n.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "other.example.com", NodeID: name}, {Name: driver, NodeID: name, TopologyKeys: keys}}
	return n
}

func pvc(name string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{}
	c.Namespace, c.Name = "default", name
	return c
}

func class(zones ...string) *storagev1.StorageClass {
	c := &storagev1.StorageClass{Provisioner: driver}
	c.Name = "fast"
	if len(zones) > 0 {
		c.AllowedTopologies = []corev1.TopologySelectorTerm{{
			MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "zone", Values: zones}},
		}}
	}
	return c
}

// world is three nodes in two zones that run the driver, and one that does not.
func world(t *testing.T) *apiserver.Cluster {
	return apiserver.New(t, csidriver.New(driver),
		node("n1", "zone", "a"), node("n2", "zone", "b"), node("n3", "zone", "b"), node("n4", "zone", "c"),
		csiNode("n1", driver, "zone"), csiNode("n2", driver, "zone"), csiNode("n3", driver, "zone"), csiNode("n4", "another.example.com", "zone"))
}

func begin(c *apiserver.Cluster, o topology.Options) *topology.Tracker {
	tracker := topology.New(c.Env, o)
	c.Start()
	return tracker
}

func texts(topologies []*csi.Topology) string {
	var all []string
	for _, one := range topologies {
		all = append(all, claim.NewTerm(one.GetSegments()).String())
	}
	return strings.Join(all, " ")
}

func wantRequirement(t *testing.T, tracker *topology.Tracker, claimName string, sc *storagev1.StorageClass, selected, requisite, preferred string) {
	t.Helper()
	got, err := tracker.Requirement(pvc(claimName), sc, selected)
	if err != nil {
		t.Fatal(err)
	}
	if texts(got.GetRequisite()) != requisite || texts(got.GetPreferred()) != preferred {
		t.Errorf("requisite %q, preferred %q", texts(got.GetRequisite()), texts(got.GetPreferred()))
	}
}

func wantSegments(t *testing.T, c *apiserver.Cluster, tracker *topology.Tracker, want ...string) {
	t.Helper()
	c.Eventually(func() error {
		var got []string
		for _, term := range tracker.Segments() {
			got = append(got, term.String())
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			return fmt.Errorf("segments %q, not %q", got, want)
		}
		return nil
	})
}

func TestRequirement_looseListsTheNodesSegmentFirst(t *testing.T) {
	tracker := begin(world(t), topology.Options{})
	wantRequirement(t, tracker, "data", class(), "n3", "zone=a zone=b", "zone=b zone=a")
}

func TestRequirement_strictListsTheNodesSegmentOnly(t *testing.T) {
	tracker := begin(world(t), topology.Options{Strict: true})
	wantRequirement(t, tracker, "data", class(), "n3", "zone=b", "zone=b")
	if _, err := tracker.Requirement(pvc("data"), class("a"), "n3"); err == nil || errors.Is(err, topology.ErrNodeGone) {
		t.Errorf("a node out of allowedTopologies: %v", err)
	}
}

func TestRequirement_immediateSpreads(t *testing.T) {
	tracker := begin(world(t), topology.Options{Immediate: true})
	wantRequirement(t, tracker, "data-web-1", class(), "", "zone=a zone=b", "zone=a zone=b")
	wantRequirement(t, tracker, "data-web-2", class(), "", "zone=a zone=b", "zone=b zone=a")
	wantRequirement(t, tracker, "data-web-2", class("x", "y", "z"), "", "zone=x zone=y zone=z", "zone=z zone=x zone=y")
}

func TestRequirement_notImmediateIsEmpty(t *testing.T) {
	tracker := begin(world(t), topology.Options{})
	wantRequirement(t, tracker, "data", class(), "", "", "")
}

func TestRequirement_offIsEmptyAndWatchesNothing(t *testing.T) {
	c := world(t)
	c.React("*", "nodes", func(apiserver.Request) error { t.Error("nodes are read"); return nil })
	c.React("*", "csinodes", func(apiserver.Request) error { t.Error("CSINodes are read"); return nil })
	tracker := begin(c, topology.Options{Off: true, Strict: true, Immediate: true})
	wantRequirement(t, tracker, "data", class("a"), "n1", "", "")
	if got := tracker.Segments(); len(got) != 1 || len(got[0]) != 0 {
		t.Errorf("segments %v, want one empty segment", got)
	}
}

func TestRequirement_aMissingNodeIsErrNodeGone(t *testing.T) {
	c := world(t)
	tracker := begin(c, topology.Options{})
	for _, selected := range []string{"n4", "unknown"} {
		if _, err := tracker.Requirement(pvc("data"), class(), selected); !errors.Is(err, topology.ErrNodeGone) || !strings.Contains(err.Error(), selected) {
			t.Errorf("%s: %v", selected, err)
		}
	}
	c.Delete(node("n1"))
	c.Delete(csiNode("n2", driver))
	for _, selected := range []string{"n1", "n2"} {
		c.Eventually(func() error {
			if _, err := tracker.Requirement(pvc("data"), class(), selected); !errors.Is(err, topology.ErrNodeGone) {
				return fmt.Errorf("%s: %w", selected, err)
			}
			return nil
		})
	}
}

func TestRequirement_aMissingLabelIsRetried(t *testing.T) {
	c := world(t)
	c.Add(node("n5"), csiNode("n5", driver, "zone"))
	tracker := begin(c, topology.Options{})
	_, err := tracker.Requirement(pvc("data"), class(), "n5")
	if err == nil || errors.Is(err, topology.ErrNodeGone) || !strings.Contains(err.Error(), "zone") {
		t.Fatalf("got %v", err)
	}
	c.Put(node("n5", "zone", "e"))
	c.Eventually(func() error {
		_, err := tracker.Requirement(pvc("data"), class(), "n5")
		return err
	})
}

func TestSegments_followTheNodes(t *testing.T) {
	c := world(t)
	tracker := topology.New(c.Env, topology.Options{})
	var notified atomic.Int32
	tracker.OnChange(func() { notified.Add(1) })
	c.Start()
	wantSegments(t, c, tracker, "zone=a", "zone=b")
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"a node is added", func() { c.Add(node("n5", "zone", "e"), csiNode("n5", driver, "zone")) }, []string{"zone=a", "zone=b", "zone=e"}},
		{"its label changes", func() { c.Put(node("n5", "zone", "f")) }, []string{"zone=a", "zone=b", "zone=f"}},
		{"the driver is unregistered", func() { c.Put(csiNode("n5", "another.example.com", "zone")) }, []string{"zone=a", "zone=b"}},
		{"the keys change", func() { c.Put(csiNode("n1", driver, "zone", "kubernetes.io/hostname")) }, []string{"zone=b", "kubernetes.io/hostname=n1,zone=a"}},
		{"a node of two goes", func() { c.Delete(node("n2")) }, []string{"zone=b", "kubernetes.io/hostname=n1,zone=a"}},
		{"the second one goes", func() { c.Delete(csiNode("n3", driver)) }, []string{"kubernetes.io/hostname=n1,zone=a"}},
	} {
		before := notified.Load()
		step.do()
		wantSegments(t, c, tracker, step.want...)
		if strings.Contains(step.name, "two") {
			continue
		}
		c.Eventually(func() error {
			if notified.Load() == before {
				return fmt.Errorf("%s, and the handler was not called", step.name)
			}
			return nil
		})
	}
}

func TestNodeDeployment_hasItsOwnSegmentAndWatchesNothing(t *testing.T) {
	c := world(t)
	c.React("*", "nodes", func(apiserver.Request) error { t.Error("nodes are read"); return nil })
	c.Env.Scope = cluster.Scope{Node: "n1", Segments: map[string]string{"topology.example.com/node": "n1"}}
	tracker := begin(c, topology.Options{Strict: true, Immediate: true})
	wantSegments(t, c, tracker, "topology.example.com/node=n1")
	wantRequirement(t, tracker, "data", class(), "n1", "topology.example.com/node=n1", "topology.example.com/node=n1")
	wantRequirement(t, tracker, "data-web-7", class(), "", "topology.example.com/node=n1", "topology.example.com/node=n1")
	if _, err := tracker.Requirement(pvc("data"), class(), "n2"); err == nil || errors.Is(err, topology.ErrNodeGone) {
		t.Errorf("another node's claim: %v", err)
	}
}

func TestNodeDeployment_withoutTopologyHasNoSegments(t *testing.T) {
	c := world(t)
	c.Env.Scope = cluster.Scope{Node: "n1"}
	tracker := begin(c, topology.Options{})
	if got := tracker.Segments(); len(got) != 0 {
		t.Errorf("segments %v: a node would report the capacity of all nodes", got)
	}
	if _, err := tracker.Requirement(pvc("data"), class(), "n1"); err == nil {
		t.Error("a node without segments has a requirement")
	}
}
