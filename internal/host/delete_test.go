package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

func remove(t *testing.T, h *Host, resource, key string, o api.DeleteOptions) (api.Deleted, error) {
	t.Helper()
	kind, known := store.KindOf(resource)
	if !known {
		t.Fatalf("kind %s does not exist", resource)
	}
	return h.DeleteObject(context.Background(), kind, key, o)
}

func TestDeleteObject_plainObjectsGoAtOnceAndNameTheirUsers(t *testing.T) {
	withSecret := changed(t, aVolume, "volumeHandle: h", "volumeHandle: h, nodeStageSecretRef: {name: s, namespace: default}")
	cases := []struct{ name, manifest, resource, key, waits string }{
		{"an unused class", aClass, "storageclasses", "c", ""},
		{"a class with claims", aClass + "---\n" + aClaim, "storageclasses", "c", "without it, these claims wait, or cannot grow: default/data"},
		{"an unused secret", aSecret, "secrets", "default/s", ""},
		{"a secret of a volume", aSecret + "---\n" + withSecret, "secrets", "default/s", "PersistentVolume pv"},
		{"a ConfigMap of a pod", aConfig + "---\n" + changed(t, aPod, "volumes: [", "volumes: [{name: c, configMap: {name: c}}, "), "configmaps", "default/c", "without it, containers cannot be started again: Pod default/p"},
		{"a ConfigMap next to a pod with a Secret of that name", aConfig + "---\n" + changed(t, aPod, "volumes: [", "volumes: [{name: c, secret: {secretName: c}}, "), "configmaps", "default/c", ""},
		{"an attributes class", anotherC, "volumeattributesclasses", "gold", ""},
		{"a snapshot class with a snapshot that waits", aSnapC + "---\n" + changed(t, aSnap, "{source", "{volumeSnapshotClassName: sc, source"), "volumesnapshotclasses", "sc", "these snapshots wait: default/snap"},
		{"a driver", aDriver, "csidrivers", "d.example", ""},
		{"an empty namespace", aSpace, "namespaces", "team", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := newApplier(t)
			mustApply(t, h, c.manifest)
			deleted, err := remove(t, h, c.resource, c.key, api.DeleteOptions{})
			if err != nil || !deleted.Gone {
				t.Fatalf("got %+v, %v", deleted, err)
			}
			if waits := strings.Join(deleted.Waits, "\n"); (waits == "") != (c.waits == "") || !strings.Contains(waits, c.waits) {
				t.Errorf("it says %q, want %q", waits, c.waits)
			}
			if _, err := remove(t, h, c.resource, c.key, api.DeleteOptions{}); !errors.Is(err, api.ErrNotFound) {
				t.Errorf("the second time: %v", err)
			}
		})
	}
}

func TestDeleteObject_aClassIsNotMissedByAClaimThatGoes(t *testing.T) {
	h := newApplier(t)
	mustApply(t, h, aClass+"---\n"+aClaim)
	if deleted, err := remove(t, h, "persistentvolumeclaims", "default/data", api.DeleteOptions{}); err != nil || deleted.Gone {
		t.Fatalf("got %+v, %v", deleted, err)
	}
	if deleted, err := remove(t, h, "storageclasses", "c", api.DeleteOptions{}); err != nil || len(deleted.Waits) > 0 {
		t.Errorf("got %+v, %v", deleted, err)
	}
}

func TestDeleteObject_whatIsInUseWaitsAndNamesItsUsers(t *testing.T) {
	copying := changed(t, changed(t, aClaim, "{name: data,", "{name: copy,"), "{storageClassName", "{dataSource: {kind: PersistentVolumeClaim, name: data}, storageClassName")
	cases := []struct{ name, manifest, resource, key, waits string }{
		{"a claim", aClaim, "persistentvolumeclaims", "default/data", ""},
		{"a claim of a pod", aClaim + "---\n" + aPod, "persistentvolumeclaims", "default/data", "used by Pod default/p"},
		{"a claim of a snapshot", aClaim + "---\n" + aSnap, "persistentvolumeclaims", "default/data", "a snapshot of it is being made: VolumeSnapshot default/snap"},
		{"a claim that is copied", aClaim + "---\n" + copying, "persistentvolumeclaims", "default/data", "being copied by PersistentVolumeClaim default/copy"},
		{"a pod", aPod, "pods", "default/p", "its containers end and its volumes are taken away first"},
		{"a volume", aVolume, "persistentvolumes", "pv", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := newApplier(t)
			mustApply(t, h, c.manifest)
			for range 2 { // a repetition succeeds and changes nothing
				deleted, err := remove(t, h, c.resource, c.key, api.DeleteOptions{})
				if err != nil || deleted.Gone {
					t.Fatalf("got %+v, %v", deleted, err)
				}
				if waits := strings.Join(deleted.Waits, "\n"); (waits == "") != (c.waits == "") || !strings.Contains(waits, c.waits) {
					t.Errorf("it says %q, want %q", waits, c.waits)
				}
			}
		})
	}
}

func TestDeleteObject_marksAPodWithItsGracePeriod(t *testing.T) {
	h := newApplier(t)
	mustApply(t, h, changed(t, aPod, "spec:\n", "spec:\n  terminationGracePeriodSeconds: 7\n"))
	if _, err := remove(t, h, "pods", "default/p", api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := stored(t, h, podsOf, "default/p")
	if pod.DeletionTimestamp == nil || *pod.DeletionGracePeriodSeconds != 7 || pod.Generation != 2 {
		t.Errorf("got %+v", pod.ObjectMeta)
	}
	before := version(t, h)
	if _, err := remove(t, h, "pods", "default/p", api.DeleteOptions{}); err != nil || version(t, h) != before {
		t.Errorf("the second delete wrote something (%v)", err)
	}
}

// The controller of volumes may not have acted on the policy yet, and adds no finalizer to an
// object that is being deleted.
func TestDeleteObject_aVolumeIsReclaimedByThePolicyThatItHas(t *testing.T) {
	const keep, drop = corev1.PersistentVolumeReclaimRetain, corev1.PersistentVolumeReclaimDelete
	for _, c := range []struct {
		phase  corev1.PersistentVolumePhase
		policy corev1.PersistentVolumeReclaimPolicy
		want   bool
	}{
		{corev1.VolumeBound, drop, true}, {corev1.VolumeReleased, drop, true},
		{corev1.VolumeAvailable, drop, false}, {corev1.VolumeFailed, drop, false},
		{corev1.VolumeBound, keep, false}, {corev1.VolumeReleased, keep, false},
	} {
		t.Run(fmt.Sprintf("%s with policy %s", c.phase, c.policy), func(t *testing.T) {
			h := newApplier(t)
			mustApply(t, h, aVolume)
			rewrite(t, h, volumesOf, "pv", func(pv *corev1.PersistentVolume) {
				pv.Status.Phase, pv.Spec.PersistentVolumeReclaimPolicy = c.phase, c.policy
			})
			if deleted, err := remove(t, h, "persistentvolumes", "pv", api.DeleteOptions{}); err != nil || deleted.Gone {
				t.Fatalf("got %+v, %v", deleted, err)
			}
			if pv := stored(t, h, volumesOf, "pv"); slices.Contains(pv.Finalizers, claim.ProvisionerFinalizer) != c.want {
				t.Errorf("the finalizers are %v", pv.Finalizers)
			}
		})
	}
}

func TestDeleteObject_aGenericEphemeralVolumeIsItsPods(t *testing.T) {
	h := newApplier(t)
	mustApply(t, h, aPod+"---\n"+aClaim)
	pod := stored(t, h, podsOf, "default/p")
	rewrite(t, h, claims, "default/data", func(pvc *corev1.PersistentVolumeClaim) {
		yes := true
		pvc.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: pod.UID, Controller: &yes}}
	})
	deleted, err := remove(t, h, "persistentvolumeclaims", "default/data", api.DeleteOptions{})
	if err != nil || !strings.Contains(strings.Join(deleted.Waits, "\n"), "used by Pod default/p, whose own volume it is") {
		t.Errorf("got %+v, %v", deleted, err)
	}
}

func TestDeleteObject_refuses(t *testing.T) {
	h := newApplier(t)
	mustApply(t, h, aSpace+"---\n"+changed(t, aSecret, "{name: s}", "{name: s, namespace: team}"))
	cases := []struct {
		name, resource, key string
		options             api.DeleteOptions
		kind                error
		want                string
	}{
		{"a missing object", "pods", "default/none", api.DeleteOptions{}, api.ErrNotFound, `Pod "default/none": not found`},
		{"another uid", "secrets", "team/s", api.DeleteOptions{UID: "x"}, api.ErrConflict, "has uid"},
		{"another version", "secrets", "team/s", api.DeleteOptions{ResourceVersion: "1"}, api.ErrConflict, "has changed since it was read"},
		{"a namespace with objects", "namespaces", "team", api.DeleteOptions{}, api.ErrConflict, `is not empty: it has Secret "s"`},
		{"the default namespace", "namespaces", "default", api.DeleteOptions{}, api.ErrForbidden, "cannot be deleted"},
		{"the host's own", "csinodes", "x", api.DeleteOptions{}, api.ErrForbidden, "is written by the host"},
		{"an attachment", "volumeattachments", "x", api.DeleteOptions{}, api.ErrForbidden, "is written by the host"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if _, err := remove(t, h, c.resource, c.key, c.options); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	secret := stored(t, h, secrets, "team/s")
	if _, err := remove(t, h, "secrets", "team/s", api.DeleteOptions{UID: string(secret.UID), ResourceVersion: secret.ResourceVersion}); err != nil {
		t.Error(err)
	}
}
