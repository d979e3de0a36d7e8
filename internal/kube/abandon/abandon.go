// Package abandon ends what belongs to a node that was lost for good, for a driver whose
// volumes are on the disks of its nodes. Such a node's process alone can delete its
// volumes and snapshots, so that their objects would wait for ever.
//
// It ends only what the users have deleted, and what blocks claims: released
// PersistentVolumes with the policy Delete, snapshot contents and cloned claims that are
// being deleted, the selection of the node for claims without a volume, and the node's intents. It reports
// everything else, and what it waits for.
package abandon

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/kube/api"
	"github.com/holdfast-csi/holdfast/internal/kube/cluster"
	"github.com/holdfast-csi/holdfast/internal/kube/intent"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// Options of Node.
type Options struct {
	Clients cluster.Clients
	// Driver is the name of the CSI driver.
	Driver string
	// DryRun reports what would be ended, and changes nothing.
	DryRun bool
}

// Entry is an object of the node.
type Entry struct {
	Kind, Name string
	// Ended reports that the object does not wait for the node any more. Else Why says
	// what it waits for.
	Ended bool
	Why   string
}

// run is one call of Node.
type run struct {
	Options
	node    string
	handles []string // of the node's volumes
	names   []string // of their PersistentVolumes
	entries []Entry
}

// Node ends the objects of a node. It refuses a node that exists, also under another
// name, as long as a Node has the label by which volumes name it. An object that keeps
// changing at the same time is an error, and the call can be repeated.
func Node(ctx context.Context, node string, o Options) ([]Entry, error) {
	r := &run{Options: o, node: node}
	if len(validation.IsDNS1123Subdomain(node)) > 0 {
		return nil, fmt.Errorf("%q is not the name of a node", node)
	}
	for _, step := range []func(context.Context) error{r.volumes, r.contents, r.groups, r.intents, r.claims} {
		if err := r.repeat(ctx, step); err != nil {
			return r.entries, err
		}
	}
	return r.entries, nil
}

// attempts bounds how often a step is repeated for objects that change at the same time.
const attempts = 5

// repeat does a step, and again if an object has changed since it was listed: the
// controllers of Kubernetes remove their finalizers as soon as an object is deleted.
func (r *run) repeat(ctx context.Context, step func(context.Context) error) error {
	for attempt := 1; ; attempt++ {
		if err := r.reached(ctx); err != nil {
			return err
		}
		err := step(ctx)
		if attempt == attempts || !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			return err
		}
	}
}

// reached returns an error if any node can have the volumes.
func (r *run) reached(ctx context.Context) error {
	nodes, err := r.Clients.Core.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	for i := range nodes.Items {
		if found := &nodes.Items[i]; found.Name == r.node {
			return r.exists()
		} else if key := r.labelOf(found); key != "" {
			return fmt.Errorf("node %q has the label %s=%s, so that it can use the volumes of that node", found.Name, key, r.node)
		}
	}
	return nil
}

// labelOf returns the label by which the affinity of volumes can name a node as this one.
func (r *run) labelOf(found *corev1.Node) string {
	for key, value := range found.Labels {
		if value == r.node && lifecycle.NamesNode(key) {
			return key
		}
	}
	return ""
}

func (r *run) exists() error {
	return fmt.Errorf("node %q exists: if it never comes back, delete it first (kubectl delete node %s)", r.node, r.node)
}

// gone returns an error if the node exists. It precedes each change: the node can come
// back at any time.
func (r *run) gone(ctx context.Context) error {
	_, err := r.Clients.Core.CoreV1().Nodes().Get(ctx, r.node, metav1.GetOptions{})
	switch {
	case err == nil:
		return r.exists()
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read Node %q: %w", r.node, err)
	}
	return nil
}

// note reports an object, in place of what an earlier attempt reported.
func (r *run) note(kind, name string, ended bool, why string) {
	r.entries = slices.DeleteFunc(r.entries, func(e Entry) bool { return e.Kind == kind && e.Name == name })
	r.entries = append(r.entries, Entry{Kind: kind, Name: name, Ended: ended, Why: why})
}

// list returns all objects of a kind; none if the cluster does not serve it.
func list[T any, L runtime.Object](
	ctx context.Context, kind string, source interface {
		List(ctx context.Context, options metav1.ListOptions) (L, error)
	}, options metav1.ListOptions, items func(L) []T,
) ([]T, error) {
	found, err := source.List(ctx, options)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %ss: %w", kind, err)
	}
	return items(found), nil
}

// patch changes an object if it still is the one that was listed.
func patch[T api.Object](
	ctx context.Context, r *run, client api.Writer[T], kind string, object T, ops []cluster.Op,
) error {
	if ops == nil {
		return nil
	}
	if err := r.gone(ctx); err != nil {
		return err
	}
	ops = append([]cluster.Op{cluster.TestVersion(object.GetResourceVersion())}, ops...)
	_, err := client.Patch(ctx, object.GetName(), types.JSONPatchType, cluster.JSONPatch(ops...), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("change %s %q: %w; repeat the command", kind, cluster.KeyOf(object), err)
	}
	return nil
}

func (r *run) volumes(ctx context.Context) error {
	const kind = "PersistentVolume"
	client := r.Clients.Core.CoreV1().PersistentVolumes()
	all, err := list(ctx, kind, client, metav1.ListOptions{},
		func(l *corev1.PersistentVolumeList) []corev1.PersistentVolume { return l.Items })
	if err != nil {
		return err
	}
	for i := range all {
		pv := &all[i]
		if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != r.Driver || !lifecycle.OnlyOn(pv, r.node) {
			continue
		}
		r.handles, r.names = append(r.handles, pv.Spec.CSI.VolumeHandle), append(r.names, pv.Name)
		remove, end, why := lifecycle.Abandon(pv)
		if !r.DryRun {
			if err := r.endVolume(ctx, pv, remove, end); err != nil {
				return err
			}
		}
		r.note(kind, pv.Name, why == "", why)
	}
	return nil
}

// endVolume deletes the object before it removes the finalizer: an interrupted call
// leaves an object that is being deleted, which the repeated call completes.
func (r *run) endVolume(ctx context.Context, pv *corev1.PersistentVolume, remove, end bool) error {
	client := r.Clients.Core.CoreV1().PersistentVolumes()
	if end && pv.DeletionTimestamp == nil {
		if err := r.gone(ctx); err != nil {
			return err
		}
		err := client.Delete(ctx, pv.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &pv.UID, ResourceVersion: &pv.ResourceVersion},
		})
		if err == nil {
			pv, err = client.Get(ctx, pv.Name, metav1.GetOptions{})
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("delete PersistentVolume %q: %w; repeat the command", pv.Name, err)
		}
	}
	if !remove {
		return nil
	}
	return patch(ctx, r, client, "PersistentVolume", pv, cluster.RemoveFinalizers(pv, claim.ProvisionerFinalizer))
}

// endContent ends a content of either kind that is being deleted.
func endContent[T api.Object](
	ctx context.Context, r *run, client api.Writer[T], kind, noun string, object T, finalizer string,
	user corev1.ObjectReference,
) error {
	if object.GetDeletionTimestamp() == nil {
		r.note(kind, object.GetName(), false,
			fmt.Sprintf("delete %s %q, then repeat this command", noun, user.Namespace+"/"+user.Name))
		return nil
	}
	if !r.DryRun {
		if err := patch(ctx, r, client, kind, object, cluster.RemoveFinalizers(object, finalizer)); err != nil {
			return err
		}
	}
	r.note(kind, object.GetName(), true, "")
	return nil
}

// has reports whether a content is of the node: by its label, or else by its topology or its
// volumes. A snapshot that other nodes can have is of none.
func (r *run) has(driver string, content metav1.Object, handles ...string) bool {
	if driver != r.Driver {
		return false
	}
	usable, err := claim.SnapshotTerms(content.GetAnnotations())
	if err == nil && slices.ContainsFunc(usable, func(t claim.Term) bool { return !lifecycle.TermOn(t, r.node) }) {
		return false
	}
	if node := content.GetLabels()[claim.ManagedByLabel]; node != claim.AnyNode {
		return node == claim.NodeLabelValue(r.node)
	}
	return len(usable) > 0 || slices.ContainsFunc(handles, func(handle string) bool { return slices.Contains(r.handles, handle) })
}

func (r *run) claims(ctx context.Context) error {
	const kind = "PersistentVolumeClaim"
	source := r.Clients.Core.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll)
	all, err := list(ctx, kind, source, metav1.ListOptions{},
		func(l *corev1.PersistentVolumeClaimList) []corev1.PersistentVolumeClaim { return l.Items })
	if err != nil {
		return err
	}
	for i := range all {
		pvc := &all[i]
		ops := append(r.unselect(pvc), r.release(pvc)...)
		if ops == nil {
			continue
		}
		if !r.DryRun {
			if err := patch(ctx, r, r.Clients.Core.CoreV1().PersistentVolumeClaims(pvc.Namespace), kind, pvc, ops); err != nil {
				return err
			}
		}
		r.note(kind, cluster.KeyOf(pvc), true, "")
	}
	return nil
}

// unselect returns the operations that remove the selection of the node from a claim of
// the driver without a volume, so that the scheduler selects another one.
func (r *run) unselect(pvc *corev1.PersistentVolumeClaim) (ops []cluster.Op) {
	if pvc.Spec.VolumeName != "" || claim.Provisioner(pvc) != r.Driver {
		return nil
	}
	for _, key := range []string{claim.SelectedNodeAnnotation, claim.AlphaSelectedNodeAnnotation} {
		if pvc.Annotations[key] == r.node {
			ops = append(ops, cluster.Remove("metadata", "annotations", key))
		}
	}
	return ops
}

// release returns the operations that let a claim of a lost volume be deleted, which was
// being cloned when the node was lost.
func (r *run) release(pvc *corev1.PersistentVolumeClaim) []cluster.Op {
	if pvc.DeletionTimestamp == nil || !slices.Contains(r.names, pvc.Spec.VolumeName) {
		return nil
	}
	return cluster.RemoveFinalizers(pvc, lifecycle.CloneFinalizer)
}

// intents removes the intents of the node: the volumes that they are about are lost with
// it, and would keep other nodes from the claims.
func (r *run) intents(ctx context.Context) error {
	const kind = "ConfigMap"
	source := r.Clients.Core.CoreV1().ConfigMaps(metav1.NamespaceAll)
	all, err := list(ctx, kind, source, metav1.ListOptions{LabelSelector: intent.Selector},
		func(l *corev1.ConfigMapList) []corev1.ConfigMap { return l.Items })
	if err != nil {
		return err
	}
	for i := range all {
		object := &all[i]
		if !intent.WrittenBy(object, r.Driver, r.node) {
			continue
		}
		if !r.DryRun {
			if err := r.gone(ctx); err != nil {
				return err
			}
			err := r.Clients.Core.CoreV1().ConfigMaps(object.Namespace).Delete(ctx, object.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &object.UID, ResourceVersion: &object.ResourceVersion},
			})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("delete ConfigMap %q: %w; repeat the command", cluster.KeyOf(object), err)
			}
		}
		r.note(kind, cluster.KeyOf(object), true, "")
	}
	return nil
}
