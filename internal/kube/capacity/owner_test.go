package capacity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func controlled(kind, name string) []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: types.UID("uid-" + name), Controller: &yes, BlockOwnerDeletion: &yes}}
}

func pod(name string, owners []metav1.OwnerReference) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.Namespace, p.OwnerReferences = name, apiserver.Namespace, owners
	return p
}

func TestResolveOwner(t *testing.T) {
	set := &appsv1.ReplicaSet{}
	set.Name, set.Namespace, set.OwnerReferences = "ctl-abc", apiserver.Namespace, controlled("Deployment", "ctl")
	loose := &appsv1.ReplicaSet{}
	loose.Name, loose.Namespace = "loose", apiserver.Namespace
	c := apiserver.New(t, csidriver.New(driverName), set, loose,
		pod("ctl-abc-1", controlled("ReplicaSet", "ctl-abc")), pod("node-1", controlled("DaemonSet", "node")),
		pod("loose-1", controlled("ReplicaSet", "loose")), pod("alone", nil))
	for name, example := range map[string]struct {
		pod         string
		level       int
		want, fault string
	}{
		"no owner":                   {"ctl-abc-1", OwnerNone, "", ""},
		"the pod":                    {"ctl-abc-1", OwnerPod, "v1/Pod/ctl-abc-1/uid-ctl-abc-1", ""},
		"its ReplicaSet":             {"ctl-abc-1", OwnerController, "apps/v1/ReplicaSet/ctl-abc/uid-ctl-abc", ""},
		"its Deployment":             {"ctl-abc-1", OwnerDeployment, "apps/v1/Deployment/ctl/uid-ctl", ""},
		"its DaemonSet":              {"node-1", OwnerController, "apps/v1/DaemonSet/node/uid-node", ""},
		"nothing above a DaemonSet":  {"node-1", OwnerDeployment, "", "owner level to 1"},
		"nothing above a ReplicaSet": {"loose-1", OwnerDeployment, "", "owner level to 1"},
		"nothing above the pod":      {"alone", OwnerController, "", "owner level to 0"},
		"no such pod":                {"unknown", OwnerPod, "", "holdfast-system/unknown"},
		"POD_NAME is not set":        {"", OwnerPod, "", "POD_NAME"},
		"a level that is too high":   {"alone", 3, "", "from -1 to 2"},
		"a level that is too low":    {"alone", -2, "", "from -1 to 2"},
		"no owner and no pod name":   {"", OwnerNone, "", ""},
	} {
		var owner *metav1.OwnerReference
		find, err := OwnerAt(c.Env, example.pod, example.level)
		if find != nil {
			owner, err = find(t.Context())
		}
		got := ""
		if owner != nil {
			got = strings.Join([]string{owner.APIVersion, owner.Kind, owner.Name, string(owner.UID)}, "/")
			if !controls(*owner) || owner.BlockOwnerDeletion != nil {
				t.Errorf("%s: %v", name, owner)
			}
		}
		if got != example.want || (err != nil) != (example.fault != "") || err != nil && !strings.Contains(err.Error(), example.fault) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestOwnerAt_aNodeThatPublishesItsCapacityOwnsItsObjects(t *testing.T) {
	c := apiserver.New(t, csidriver.New(driverName), node("n1", "a"), pod("node-1", controlled("DaemonSet", "node")))
	c.Env.Scope.Node = "n1"
	for level, want := range map[int]string{OwnerPod: "Pod", OwnerController: "Node", OwnerDeployment: "Node"} {
		find, err := OwnerAt(c.Env, "node-1", level)
		if err != nil {
			t.Fatal(err)
		}
		owner, err := find(t.Context())
		if err != nil || owner.Kind != want {
			t.Errorf("level %d: %v, %v", level, owner, err)
		}
	}
	c.Env.Scope.Node = "n2"
	if _, err := NodeOwner(c.Env)(t.Context()); err == nil || !strings.Contains(err.Error(), "n2") {
		t.Errorf("an owner that does not exist: %v", err)
	}
}

func TestOwner_replacesTheOneBefore(t *testing.T) {
	c := world(t, newDriver())
	before := object("csisc-before", "one", "a", 100)
	before.OwnerReferences = controlled("StatefulSet", "upstream")
	c.Add(class("one"), pod("ctl-abc-1", controlled("ReplicaSet", "ctl-abc")), before)
	owner, err := OwnerAt(c.Env, "ctl-abc-1", OwnerController)
	if err != nil {
		t.Fatal(err)
	}
	begin(c, Options{Owner: owner})
	wantOwner(c, "ReplicaSet", "uid-ctl-abc", 2)
}

func wantOwner(c *apiserver.Cluster, kind string, uid types.UID, objects int) {
	c.Eventually(func() error {
		all := listed(c)
		if len(all) != objects {
			return fmt.Errorf("%d objects", len(all))
		}
		for _, o := range all {
			if len(o.OwnerReferences) != 1 || o.OwnerReferences[0].Kind != kind || o.OwnerReferences[0].UID != uid {
				return fmt.Errorf("%s belongs to %v", o.Name, o.OwnerReferences)
			}
		}
		return nil
	})
}

// TestOwner_aRecreatedNodeOwnsTheNewObjects is what the garbage collector does
// when a node is deleted and registers again.
func TestOwner_aRecreatedNodeOwnsTheNewObjects(t *testing.T) {
	c := apiserver.New(t, newDriver(), class("one"), node("n1", "a"))
	c.Env.Scope.Node, c.Env.Scope.Segments = "n1", map[string]string{"zone": "a"}
	begin(c, Options{Owner: NodeOwner(c.Env)})
	wantOwner(c, "Node", "uid-n1", 1)
	c.Delete(node("n1", "a"))
	anew := node("n1", "a")
	anew.UID = "uid-anew"
	c.Add(anew)
	gone := listed(c)[0]
	c.Delete(&gone)
	wantOwner(c, "Node", "uid-anew", 1)
}

func TestOwner_noWriteUntilItIsResolved(t *testing.T) {
	c := world(t, newDriver())
	c.Add(class("one"))
	tries := make(chan struct{}, 1000)
	begin(c, Options{Owner: func(context.Context) (*metav1.OwnerReference, error) {
		tries <- struct{}{}
		if len(tries) < 6 {
			return nil, errors.New("not yet")
		}
		if n := writes(c, "create"); n != 0 && len(tries) == 6 {
			t.Errorf("%d objects without their owner", n)
		}
		return &metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "uid-n1"}, nil
	}})
	wantOwner(c, "Node", "uid-n1", 2)
}
