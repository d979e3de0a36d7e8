//go:build kubernetes

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	snapshot "github.com/kubernetes-csi/external-snapshotter/client/v8/clientset/versioned"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/intent"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// The names in deploy/manifests/local.yaml.
const (
	localNamespace = "holdfast-system"
	localIntents   = "holdfast-intents"
	localAccount   = "holdfast-node"
	localDriver    = "local.holdfast.dev"
	localTopology  = "topology.local.holdfast.dev/node"
)

// ownNodeClass is used by this test only: the tests share the API server, which binds a
// claim to any volume of its class.
const ownNodeClass = "own-node"

// TestOwnNodePolicies makes the controllers' requests for the objects of three nodes
// with a node's account: with the token that the kubelet of that node gives its pod,
// and with a token without a node.
func TestOwnNodePolicies(t *testing.T) {
	t.Parallel()
	w := newNodesWorld(t)
	w.installLocal()
	w.makeObjects()
	n1 := w.account(w.podOn("n1"))
	w.waitUntilBound(n1)
	for name, try := range n1.attempts(w) {
		err := try.do(n1)
		switch {
		case try.allowed && err != nil:
			t.Errorf("%s: %v", name, err)
		case !try.allowed && err == nil:
			t.Errorf("%s: it is allowed", name)
		case !try.allowed && !strings.Contains(err.Error(), "ValidatingAdmissionPolicy"):
			t.Errorf("%s is refused for another reason: %v", name, err)
		}
	}
	w.checkLabels()
	nowhere := w.account(nil)
	for name, try := range n1.attempts(w) {
		if err := try.do(nowhere); err == nil {
			t.Errorf("%s, by a token that names no node: it is allowed", name)
		}
	}
}

// nodesWorld is an API server with the objects of the manifest.
type nodesWorld struct {
	t         *testing.T
	ctx       context.Context
	core      kubernetes.Interface
	snapshots snapshot.Interface
}

func newNodesWorld(t *testing.T) *nodesWorld {
	t.Helper()
	return &nodesWorld{t, t.Context(), kubernetes.NewForConfigOrDie(shared), snapshot.NewForConfigOrDie(shared)}
}

func (w *nodesWorld) must(_ any, err error) {
	w.t.Helper()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
}

// installLocal creates the RBAC objects and admission policies of the manifest.
func (w *nodesWorld) installLocal() {
	w.t.Helper()
	manifest := shipped(w.t, "local.yaml")
	for _, document := range documents(w.t, manifest) {
		var kind metav1.TypeMeta
		decode(w.t, document, &kind)
		switch kind.Kind {
		case "Namespace":
			create(w, w.core.CoreV1().Namespaces(), document, new(corev1.Namespace))
		case "ServiceAccount":
			create(w, w.core.CoreV1().ServiceAccounts(localNamespace), document, new(corev1.ServiceAccount))
		case "ClusterRole":
			create(w, w.core.RbacV1().ClusterRoles(), document, new(rbacv1.ClusterRole))
		case "ClusterRoleBinding":
			create(w, w.core.RbacV1().ClusterRoleBindings(), document, new(rbacv1.ClusterRoleBinding))
		case "Role":
			role := new(rbacv1.Role)
			decode(w.t, document, role)
			create(w, w.core.RbacV1().Roles(role.Namespace), document, role)
		case "RoleBinding":
			binding := new(rbacv1.RoleBinding)
			decode(w.t, document, binding)
			create(w, w.core.RbacV1().RoleBindings(binding.Namespace), document, binding)
		}
	}
	installed := installPolicies(w.ctx, w.t, w.core, manifest, nil, nil, nil)
	if installed.made["ValidatingAdmissionPolicy"] == 0 {
		w.t.Fatalf("the manifest has %v", installed.made)
	}
	w.t.Cleanup(installed.remove)
}

func create[T any](w *nodesWorld, objects client[T], document []byte, object *T) {
	w.t.Helper()
	decode(w.t, document, object)
	w.must(objects.Create(w.ctx, object, metav1.CreateOptions{}))
}

// podOn returns a pod of the driver on a node, as the DaemonSet creates it.
func (w *nodesWorld) podOn(node string) *corev1.Pod {
	w.t.Helper()
	pod, err := w.core.CoreV1().Pods(localNamespace).Create(w.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "driver-on-" + node, Namespace: localNamespace},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: localAccount, Containers: []corev1.Container{{Name: "holdfast", Image: "none"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return pod
}

// nodeAccount is the nodes' account with one token.
type nodeAccount struct {
	core      kubernetes.Interface
	snapshots snapshot.Interface
}

func (w *nodesWorld) account(pod *corev1.Pod) nodeAccount {
	w.t.Helper()
	return w.accountNamed(localAccount, pod)
}

// accountNamed requests a token as the kubelet does; without a pod the token has no node.
func (w *nodesWorld) accountNamed(name string, pod *corev1.Pod) nodeAccount {
	w.t.Helper()
	request := &authenticationv1.TokenRequest{}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	answer, err := w.core.CoreV1().ServiceAccounts(localNamespace).CreateToken(w.ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(shared)
	config.BearerToken, config.QPS = answer.Status.Token, -1
	return nodeAccount{kubernetes.NewForConfigOrDie(config), snapshot.NewForConfigOrDie(config)}
}

// waitUntilBound waits until the API server applies the policies.
func (w *nodesWorld) waitUntilBound(n1 nodeAccount) {
	w.t.Helper()
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(100 * time.Millisecond) {
		open := ""
		for name, try := range n1.attempts(w) {
			if !try.allowed && try.do(n1) == nil {
				open = name
			}
		}
		if open == "" {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("the rules do not act: %s", open)
		}
	}
}

func localVolume(name, node string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ownNodeClass,
			ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: "claim-of-" + name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: localDriver, VolumeHandle: name}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: localTopology, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
	}
}

func localCapacity(name, node, driver string) *storagev1.CSIStorageCapacity {
	return &storagev1.CSIStorageCapacity{
		ObjectMeta:       metav1.ObjectMeta{Name: name, Namespace: localNamespace, Labels: map[string]string{"csi.storage.k8s.io/drivername": driver}},
		StorageClassName: ownNodeClass, NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{localTopology: node}},
	}
}

// makeObjects creates objects of the nodes n1 and n2, and of no node.
func (w *nodesWorld) makeObjects() {
	w.t.Helper()
	class := ownNodeClass
	for _, node := range []string{"n1", "n2"} {
		w.must(w.core.CoreV1().PersistentVolumes().Create(w.ctx, localVolume("volume-"+node, node), metav1.CreateOptions{}))
		w.must(w.core.StorageV1().CSIStorageCapacities(localNamespace).Create(w.ctx, localCapacity("capacity-"+node, node, localDriver), metav1.CreateOptions{}))
		w.must(w.core.CoreV1().ConfigMaps(localIntents).Create(w.ctx, intentsOf(node, "0"), metav1.CreateOptions{}))
	}
	unplaced := localVolume("volume-none", "")
	unplaced.Spec.NodeAffinity = nil
	w.must(w.core.CoreV1().PersistentVolumes().Create(w.ctx, unplaced, metav1.CreateOptions{}))
	for _, node := range []string{"n1", "n2", "none", "other"} {
		pvc := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "claim-" + node, Namespace: localNamespace, Annotations: map[string]string{"user": "x"}, Finalizers: []string{"example.com/user"}},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}
		content := &snapshotv1.VolumeSnapshotContent{
			ObjectMeta: metav1.ObjectMeta{Name: "content-" + node},
			Spec: snapshotv1.VolumeSnapshotContentSpec{
				Driver: localDriver, DeletionPolicy: snapshotv1.VolumeSnapshotContentRetain, Source: snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: &class},
				VolumeSnapshotRef: corev1.ObjectReference{Namespace: localNamespace, Name: "snapshot"},
			},
		}
		switch node {
		case "none":
		case "other":
			pvc.Annotations["volume.kubernetes.io/storage-provisioner"] = "other.example"
		default:
			pvc.Annotations["volume.kubernetes.io/selected-node"] = node
			pvc.Annotations["volume.kubernetes.io/storage-provisioner"] = localDriver
			content.Labels = map[string]string{"snapshot.storage.kubernetes.io/managed-by": node}
		}
		w.must(w.core.CoreV1().PersistentVolumeClaims(localNamespace).Create(w.ctx, pvc, metav1.CreateOptions{}))
		w.must(w.snapshots.SnapshotV1().VolumeSnapshotContents().Create(w.ctx, content, metav1.CreateOptions{}))
	}
	w.must(w.snapshots.SnapshotV1().VolumeSnapshots(localNamespace).Create(w.ctx, &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: "snapshot", Namespace: localNamespace},
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &class}},
	}, metav1.CreateOptions{}))
	w.makeReadySnapshot()
}

// makeReadySnapshot creates a snapshot that exists already; snapshot-controller binds it.
func (w *nodesWorld) makeReadySnapshot() {
	w.t.Helper()
	contents, snapshots := w.snapshots.SnapshotV1().VolumeSnapshotContents(), w.snapshots.SnapshotV1().VolumeSnapshots(localNamespace)
	name, handle := "content-ready", "handle"
	content, err := contents.Create(w.ctx, &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: localDriver, DeletionPolicy: snapshotv1.VolumeSnapshotContentRetain,
			Source:            snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: &handle},
			VolumeSnapshotRef: corev1.ObjectReference{Namespace: localNamespace, Name: "ready"},
		},
	}, metav1.CreateOptions{})
	w.must(content, err)
	w.must(contents.Patch(w.ctx, name, types.MergePatchType, []byte(`{"status":{"snapshotHandle":"handle","readyToUse":true}}`), metav1.PatchOptions{}, "status"))
	w.must(snapshots.Create(w.ctx, &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: "ready", Namespace: localNamespace},
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: &name}},
	}, metav1.CreateOptions{}))
	for deadline := time.Now().Add(testTimeout); ; time.Sleep(100 * time.Millisecond) {
		snapshot, err := snapshots.Get(w.ctx, "ready", metav1.GetOptions{})
		w.must(snapshot, err)
		if status := snapshot.Status; status != nil && status.ReadyToUse != nil && *status.ReadyToUse {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("the snapshot is not ready: %+v", snapshot.Status)
		}
	}
}

func intentsOf(node, number string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: intent.Prefix(localDriver, node) + number, Namespace: localIntents},
		Data:       map[string]string{"uid": "{}"},
	}
}

// attempt is a dry-run request of a node's account.
type attempt struct {
	allowed bool
	do      func(nodeAccount) error
}

// attempts returns the requests of node n1's controllers, for their own objects and for
// those of others.
func (nodeAccount) attempts(w *nodesWorld) map[string]attempt {
	all := map[string]attempt{}
	for _, part := range []map[string]attempt{volumeAttempts(w), claimAttempts(w), snapshotAttempts(w), ownNamespaceAttempts(w)} {
		maps.Copy(all, part)
	}
	return all
}

var dry = []string{metav1.DryRunAll} //nolint:gochecknoglobals // a constant

func volumeAttempts(w *nodesWorld) map[string]attempt {
	make := func(change func(*corev1.PersistentVolume)) func(nodeAccount) error {
		return func(a nodeAccount) error {
			pv := localVolume("volume-new", "n1")
			change(pv)
			_, err := a.core.CoreV1().PersistentVolumes().Create(w.ctx, pv, metav1.CreateOptions{DryRun: dry})
			return err
		}
	}
	patch := func(name, text string) func(nodeAccount) error {
		return func(a nodeAccount) error {
			_, err := a.core.CoreV1().PersistentVolumes().Patch(w.ctx, name, types.MergePatchType, []byte(text), metav1.PatchOptions{DryRun: dry})
			return err
		}
	}
	remove := func(name string) func(nodeAccount) error {
		return func(a nodeAccount) error {
			return a.core.CoreV1().PersistentVolumes().Delete(w.ctx, name, metav1.DeleteOptions{DryRun: dry})
		}
	}
	grow, policy := `{"spec":{"capacity":{"storage":"2Gi"}}}`, `{"metadata":{"finalizers":["external-provisioner.volume.kubernetes.io/finalizer"]}}`
	return map[string]attempt{
		"make an own volume": {true, make(func(pv *corev1.PersistentVolume) {
			pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": localDriver}
		})},
		"make a volume of another node":    {false, make(func(pv *corev1.PersistentVolume) { affinityOf(pv).Values = []string{"n2"} })},
		"make a volume of two nodes":       {false, make(func(pv *corev1.PersistentVolume) { affinityOf(pv).Values = []string{"n1", "n2"} })},
		"make a volume of all other nodes": {false, make(func(pv *corev1.PersistentVolume) { affinityOf(pv).Operator = corev1.NodeSelectorOpNotIn })},
		"make a volume of no node":         {false, make(func(pv *corev1.PersistentVolume) { pv.Spec.NodeAffinity = nil })},
		"make a volume of another driver":  {false, make(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "other.example" })},
		"make a volume that names a secret": {false, make(func(pv *corev1.PersistentVolume) {
			pv.Spec.CSI.NodePublishSecretRef = &corev1.SecretReference{Namespace: "kube-system", Name: "x"}
		})},
		"make a volume that is a host's directory": {false, make(func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
		})},
		"make a volume that another provisioner deletes": {false, make(func(pv *corev1.PersistentVolume) {
			pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "other.example"}
		})},
		"make a volume that was migrated to another driver": {false, make(func(pv *corev1.PersistentVolume) {
			pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": localDriver, "pv.kubernetes.io/migrated-to": "other.example"}
		})},
		"hand an own volume to another provisioner": {false, patch("volume-n1", `{"metadata":{"annotations":{"pv.kubernetes.io/provisioned-by":"other.example"}}}`)},
		"grow an own volume":                        {true, patch("volume-n1", grow)},
		"grow a volume of another node":             {false, patch("volume-n2", grow)},
		"grow a volume without a node":              {true, patch("volume-none", grow)},
		"label an own volume":                       {true, patch("volume-n1", nodeLabel("n1"))},
		"label a volume of another node":            {true, patch("volume-n2", nodeLabel("n2"))}, // as the elected process
		"hide a volume from its node":               {false, patch("volume-n2", nodeLabel("n1"))},
		"make an own volume that it does not see":   {false, make(func(pv *corev1.PersistentVolume) { pv.Labels = map[string]string{claim.NodeLabel: "n2"} })},
		"label and annotate another node's volume":  {false, patch("volume-n2", `{"metadata":{"labels":{"holdfast.dev/node":"n2"},"annotations":{"a":"b"}}}`)},
		"put another label on another's volume":     {false, patch("volume-n2", `{"metadata":{"labels":{"a":"b"}}}`)},
		"pin a volume without a node":               {false, patch("volume-none", `{"spec":{"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"x","operator":"Exists"}]}]}}}}`)},
		"protect an own volume":                     {true, patch("volume-n1", policy)},
		"unprotect a volume of another node":        {false, patch("volume-n2", policy)},
		"rebind an own volume":                      {false, patch("volume-n1", `{"spec":{"claimRef":{"name":"of-another-user"}}}`)},
		"give an own volume an owner":               {false, patch("volume-n1", ownedByNone)},
		"give a volume of another node an owner":    {false, patch("volume-n2", ownedByNone)},
		"delete an own volume":                      {true, remove("volume-n1")},
		"delete a volume of another node":           {false, remove("volume-n2")},
	}
}

// ownedByNone adds an owner that does not exist. The garbage collector of Kubernetes deletes
// objects all of whose owners are gone.
const ownedByNone = `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"none","uid":"none"}]}}`

// checkLabels writes PersistentVolumes as an administrator: a label must not hide them from
// the node that can have the volume.
func (w *nodesWorld) checkLabels() {
	w.t.Helper()
	expression := func(key string, operator corev1.NodeSelectorOperator, values ...string) []corev1.NodeSelectorRequirement {
		return []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}
	}
	byName := corev1.NodeSelectorTerm{MatchFields: expression("metadata.name", corev1.NodeSelectorOpIn, "n1")}
	byHost := corev1.NodeSelectorTerm{MatchExpressions: expression("kubernetes.io/hostname", corev1.NodeSelectorOpIn, "n1")}
	of := func(operator corev1.NodeSelectorOperator, nodes ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: expression(localTopology, operator, nodes...)}
	}
	long := strings.Repeat("long-name.", 9)
	for name, row := range map[string]struct {
		label   string
		terms   []corev1.NodeSelectorTerm
		refused bool
	}{
		"its node":                         {"n1", []corev1.NodeSelectorTerm{of("In", "n1")}, false},
		"another node":                     {"n2", []corev1.NodeSelectorTerm{of("In", "n1")}, true},
		"a hash":                           {claim.NodeLabelValue(long), []corev1.NodeSelectorTerm{of("In", "n1")}, true},
		"any node":                         {claim.AnyNode, []corev1.NodeSelectorTerm{of("In", "n1")}, false},
		"any node, without an affinity":    {claim.AnyNode, nil, false},
		"a node, without an affinity":      {"n1", nil, true},
		"one of two nodes":                 {"n1", []corev1.NodeSelectorTerm{of("In", "n1", "n2")}, false},
		"one of two terms":                 {"n1", []corev1.NodeSelectorTerm{of("In", "n2"), of("In", "n1")}, false},
		"a node that is excluded":          {"n1", []corev1.NodeSelectorTerm{of("NotIn", "n1")}, true},
		"a node that is not excluded":      {"n1", []corev1.NodeSelectorTerm{of("NotIn", "n2")}, false},
		"a node of those with the driver":  {"n1", []corev1.NodeSelectorTerm{of("Exists")}, false},
		"a node by its name":               {"n1", []corev1.NodeSelectorTerm{byName}, false},
		"another node than that by name":   {"n2", []corev1.NodeSelectorTerm{byName}, true},
		"a node by another label of nodes": {"n1", []corev1.NodeSelectorTerm{byHost}, false},
	} {
		pv := localVolume("volume-labelled", "n1")
		pv.Labels = map[string]string{claim.NodeLabel: row.label}
		pv.Spec.NodeAffinity = nil
		if row.terms != nil {
			pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: row.terms}}
		}
		_, err := w.core.CoreV1().PersistentVolumes().Create(w.ctx, pv, metav1.CreateOptions{DryRun: dry})
		switch {
		case row.refused && (err == nil || !strings.Contains(err.Error(), "names a node that spec.nodeAffinity excludes")):
			w.t.Errorf("a volume with the label of %s: %v", name, err)
		case !row.refused && err != nil:
			w.t.Errorf("a volume with the label of %s: %v", name, err)
		}
	}
}

func nodeLabel(node string) string {
	return fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, claim.NodeLabel, node)
}

func affinityOf(pv *corev1.PersistentVolume) *corev1.NodeSelectorRequirement {
	return &pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0]
}

func claimAttempts(w *nodesWorld) map[string]attempt {
	patch := func(name, text string, subresources ...string) func(nodeAccount) error {
		return func(a nodeAccount) error {
			_, err := a.core.CoreV1().PersistentVolumeClaims(localNamespace).
				Patch(w.ctx, name, types.MergePatchType, []byte(text), metav1.PatchOptions{DryRun: dry}, subresources...)
			return err
		}
	}
	choose := func(node string) string {
		return `{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":` + node + `}}}`
	}
	status := `{"status":{"allocatedResources":{"storage":"2Gi"}}}`
	protect := func(name string) func(nodeAccount) error {
		return func(a nodeAccount) error {
			_, err := a.core.CoreV1().PersistentVolumeClaims(localNamespace).Patch(w.ctx, name, types.JSONPatchType,
				[]byte(`[{"op":"add","path":"/metadata/finalizers/-","value":"provisioner.storage.kubernetes.io/cloning-protection"}]`), metav1.PatchOptions{DryRun: dry})
			return err
		}
	}
	return map[string]attempt{
		"choose a claim without a node":                {true, patch("claim-none", choose(`"n1"`))},
		"choose a claim of another driver":             {false, patch("claim-other", choose(`"n1"`))},
		"report the size of a claim of another driver": {false, patch("claim-other", status, "status")},
		"choose another node for a claim":              {true, patch("claim-none", choose(`"n2"`))}, // as the elected process
		"choose another node and protect the claim":    {false, patch("claim-none", `{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"n2"},"finalizers":["example.com/user","provisioner.storage.kubernetes.io/cloning-protection"]}}`)},
		"take a claim of another node":                 {false, patch("claim-n2", choose(`"n1"`))},
		"send away an own claim":                       {true, patch("claim-n1", choose("null"))},
		"send away a claim of another node":            {true, patch("claim-n2", choose("null"))}, // as the elected process
		"label an own claim with its node":             {true, patch("claim-n1", nodeLabel("n1"))},
		"label a claim of another node with its node":  {true, patch("claim-n2", nodeLabel("n2"))},
		"label a claim of another driver":              {false, patch("claim-other", nodeLabel("n1"))},
		"hand an own claim to another node":            {false, patch("claim-n1", choose(`"n2"`))},
		"report the size of an own claim":              {true, patch("claim-n1", status, "status")},
		"report the size of a claim of another node":   {false, patch("claim-n2", status, "status")},
		"annotate a claim by its status":               {false, patch("claim-n1", `{"metadata":{"annotations":{"user":"y"}}}`, "status")},
		"protect an own source":                        {true, protect("claim-n1")},
		"protect a source of another node":             {false, protect("claim-n2")},
		"take a user's finalizer":                      {false, patch("claim-n1", `{"metadata":{"finalizers":[]}}`)},
		"take a user's annotation":                     {false, patch("claim-n1", `{"metadata":{"annotations":{"user":null}}}`)},
		"label a claim":                                {false, patch("claim-n1", `{"metadata":{"labels":{"a":"b"}}}`)},
		"give an own claim an owner":                   {false, patch("claim-n1", ownedByNone)},
		"give a claim of another node an owner":        {false, patch("claim-n2", ownedByNone)},
		"give a claim without a node an owner":         {false, patch("claim-none", ownedByNone)},
		"ask for more in a user's name":                {false, patch("claim-n1", `{"spec":{"volumeName":"volume-n1"}}`)},
	}
}

func snapshotAttempts(w *nodesWorld) map[string]attempt {
	content := func(name, text string, subresources ...string) func(nodeAccount) error {
		return func(a nodeAccount) error {
			_, err := a.snapshots.SnapshotV1().VolumeSnapshotContents().
				Patch(w.ctx, name, types.MergePatchType, []byte(text), metav1.PatchOptions{DryRun: dry}, subresources...)
			return err
		}
	}
	source := func(text string) func(nodeAccount) error {
		return func(a nodeAccount) error {
			_, err := a.snapshots.SnapshotV1().VolumeSnapshots(localNamespace).Patch(w.ctx, "ready", types.MergePatchType, []byte(text), metav1.PatchOptions{DryRun: dry})
			return err
		}
	}
	mark := fmt.Sprintf(`{"metadata":{"annotations":{%q:"yes",%q:"{}"}}}`,
		claim.VolumeSnapshotKeys().BeingCreated, claim.SnapshotRequestAnnotation)
	label := func(node string) string {
		return `{"metadata":{"labels":{"snapshot.storage.kubernetes.io/managed-by":` + node + `}}}`
	}
	ready := `{"status":{"readyToUse":true}}`
	// snapshot-controller has put finalizers on both snapshots, or does so any time.
	protect := func(name, finalizer string) func(nodeAccount) error {
		return func(a nodeAccount) error {
			snapshot, err := w.snapshots.SnapshotV1().VolumeSnapshots(localNamespace).Get(w.ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": append(snapshot.Finalizers, finalizer)}})
			if err != nil {
				return err
			}
			_, err = a.snapshots.SnapshotV1().VolumeSnapshots(localNamespace).Patch(w.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{DryRun: dry})
			return err
		}
	}
	return map[string]attempt{
		"mark an own content":                      {true, content("content-n1", mark)},
		"mark a content of another node":           {false, content("content-n2", mark)},
		"finish an own content":                    {true, content("content-n1", ready, "status")},
		"finish a content of another node":         {false, content("content-n2", ready, "status")},
		"take a content without a node":            {true, content("content-none", label(`"n1"`))},
		"give a content without a node to another": {true, content("content-none", label(`"n2"`))}, // as the elected process
		"mark a content and give it to another":    {false, content("content-none", `{"metadata":{"labels":{"snapshot.storage.kubernetes.io/managed-by":"n2"},"annotations":{"snapshot.storage.kubernetes.io/volumesnapshot-being-created":"yes"}}}`)},
		"have all nodes asked for a content":       {true, content("content-none", label(`""`))},
		"take a content of another node":           {false, content("content-n2", label(`"n1"`))},
		"let an own content go":                    {false, content("content-n1", label("null"))},
		"have a content's snapshot deleted":        {false, content("content-n1", `{"spec":{"deletionPolicy":"Delete"}}`)},
		"protect a snapshot":                       {true, protect("ready", lifecycle.RestoreFinalizer)},
		"protect a snapshot that is not ready":     {false, protect("snapshot", lifecycle.RestoreFinalizer)},
		"put another finalizer on a snapshot":      {false, protect("ready", "example.com/x")},
		"give an own content an owner":             {false, content("content-n1", ownedByNone)},
		"give a content without a node an owner":   {false, content("content-none", ownedByNone)},
		"give a snapshot an owner":                 {false, source(ownedByNone)},
		"label a snapshot":                         {false, source(`{"metadata":{"labels":{"a":"b"}}}`)},
	}
}

func ownNamespaceAttempts(w *nodesWorld) map[string]attempt {
	capacity := func(name, node, driver string) func(nodeAccount) error {
		return func(a nodeAccount) error {
			_, err := a.core.StorageV1().CSIStorageCapacities(localNamespace).Create(w.ctx, localCapacity(name, node, driver), metav1.CreateOptions{DryRun: dry})
			return err
		}
	}
	records := func(do func(api intentMaps) error) func(nodeAccount) error {
		return func(a nodeAccount) error { return do(a.core.CoreV1().ConfigMaps(localIntents)) }
	}
	make := func(object *corev1.ConfigMap) func(nodeAccount) error {
		return records(func(api intentMaps) error {
			_, err := api.Create(w.ctx, object, metav1.CreateOptions{DryRun: dry})
			return err
		})
	}
	write := func(node string) func(nodeAccount) error {
		return records(func(api intentMaps) error {
			object := intentsOf(node, "0")
			object.Data["more"] = "{}"
			_, updated := api.Update(w.ctx, object, metav1.UpdateOptions{DryRun: dry})
			return errors.Join(updated, api.Delete(w.ctx, object.Name, metav1.DeleteOptions{DryRun: dry}))
		})
	}
	central := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: intent.Prefix(localDriver, "") + "0"}}
	return map[string]attempt{
		"publish its own capacity":               {true, capacity("capacity-new", "n1", localDriver)},
		"publish the capacity of another node":   {false, capacity("capacity-new", "n2", localDriver)},
		"publish the capacity of another driver": {false, capacity("capacity-new", "n1", "other.example")},
		"make own intents":                       {true, make(intentsOf("n1", "7"))},
		"make intents of another node":           {false, make(intentsOf("n2", "7"))},
		"make intents of a node of a like name":  {false, make(intentsOf("n1-1", "7"))},
		"make intents of a central process":      {false, make(central)},
		"make any other ConfigMap":               {false, make(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt.x"}})},
		"write and delete own intents":           {true, write("n1")},
		"write and delete those of another node": {false, write("n2")},
	}
}

// intentMaps is the part of the client of ConfigMaps that is used.
type intentMaps interface {
	Create(ctx context.Context, object *corev1.ConfigMap, options metav1.CreateOptions) (*corev1.ConfigMap, error)
	Update(ctx context.Context, object *corev1.ConfigMap, options metav1.UpdateOptions) (*corev1.ConfigMap, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}
