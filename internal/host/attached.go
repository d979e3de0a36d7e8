package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/podvalues"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

// Attached is Run by way of a host that serves the root directory: that one
// brings the volumes, and this process runs the containers.
type Attached struct {
	Client *api.Client
	// Root is the host's root directory, and Private are other directories that no
	// container sees.
	Root    string
	Private []string
	// Values, if given, finds those of a Secret or a ConfigMap that is not in the files, by
	// kind and namespace/name; nil if there is none. The host answers no caller with the
	// values of a Secret.
	Values workload.Values
	// AwaitGone waits until an object that is being deleted is gone.
	AwaitGone func(ctx context.Context, kind store.Kind, namespace, name string) error

	mu     sync.Mutex
	leases map[types.UID]heldLease
}

// heldLease is a pod's lease and the request for it.
type heldLease struct {
	request api.HoldRequest
	lease   *api.Lease
}

// Run applies the files, runs the pods in them to the end and unmounts the
// volumes. It returns the exit code: that of the first container that failed, 0 if
// none did. When ctx ends, the pods are terminated, and the volumes are still
// unmounted.
func (a *Attached) Run(
	ctx context.Context, files []manifest.File, objects *manifest.Objects, output Output,
) (int, error) {
	applied, err := a.Client.Apply(ctx, files, api.ApplyOptions{Run: true})
	if err != nil {
		return 0, err
	}
	for _, warning := range applied.Warnings {
		output.Warn(warning)
	}
	values := func(kind, key string) (map[string][]byte, error) {
		for _, given := range objects.All {
			if given.Kind.Kind == kind && given.Key == key {
				return podvalues.In(given.Object), nil
			}
		}
		if a.Values != nil {
			return a.Values(kind, key)
		}
		return a.configMap(ctx, kind, key)
	}
	runner := podRunner{
		mount: a.mount, unmount: a.unmount, scratch: a.scratch, values: values,
		hide: append([]string{a.Root}, a.Private...), node: machineName(),
	}
	return runner.runPods(ctx, objects.Pods, output)
}

// configMap asks the host for the values of a ConfigMap; nil if there is none, and for
// other kinds.
func (a *Attached) configMap(ctx context.Context, kindName, key string) (map[string][]byte, error) {
	kind, known := store.KindOf("configmaps")
	if !known || kind.Kind != kindName {
		return nil, nil
	}
	namespace, name, _ := strings.Cut(key, "/")
	object, err := a.Client.Get(ctx, kind, namespace, name)
	if errors.Is(err, api.ErrNotFound) {
		return nil, nil
	}
	return podvalues.In(object), err
}

// mount makes a hold of a pod's volumes; the pod gets the UID that the host gave it.
func (a *Attached) mount(ctx context.Context, pod *corev1.Pod) (map[string]workload.Volume, error) {
	request := api.HoldRequest{
		Namespace: pod.Namespace, Name: pod.Name, Pod: pod, Once: true, TimeoutSeconds: int64(runTimeout / time.Second),
		Holder: fmt.Sprintf("holdfast run (process %d)", os.Getpid()),
	}
	lease, err := a.Client.Lease(ctx, request)
	if err != nil {
		return nil, err
	}
	pod.UID = types.UID(lease.UID)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leases == nil {
		a.leases = map[types.UID]heldLease{}
	}
	a.leases[pod.UID] = heldLease{request: request, lease: lease}
	volumes := map[string]workload.Volume{}
	for name, mount := range lease.Volumes {
		volumes[name] = workload.Volume{Path: mount.Path, Block: mount.Block, ReadOnly: mount.ReadOnly}
	}
	return volumes, nil
}

// unmount releases a pod's hold, if it has one.
func (a *Attached) unmount(ctx context.Context, pod *corev1.Pod) error {
	a.mu.Lock()
	has, ok := a.leases[pod.UID]
	delete(a.leases, pod.UID)
	a.mu.Unlock()
	if !ok {
		return nil
	}
	return endLease(ctx, a.Client, has.request, has.lease)
}

func (a *Attached) scratch(pod *corev1.Pod, container string) (string, error) {
	a.mu.Lock()
	has, ok := a.leases[pod.UID]
	a.mu.Unlock()
	if !ok {
		return "", fmt.Errorf("pod %s is not held", store.KeyOf(pod))
	}
	directory := filepath.Join(has.lease.Directory, container)
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return "", fmt.Errorf("make the container's directory: %w", err)
	}
	return directory, nil
}

// Deleted is the result of deleting one object.
type Deleted struct {
	Kind, Name string
	// Absent: there was none.
	Absent bool
	// Retained is the volume that stays because its reclaim policy is Retain.
	Retained string
}

// Delete deletes the claims, with their volumes, and then the other objects, and
// returns what became of each claim. An object that does not exist is not an error.
func (a *Attached) Delete(ctx context.Context, objects *manifest.Objects) ([]Deleted, error) {
	var deleted []Deleted
	claims, _ := store.KindOf("persistentvolumeclaims")
	for _, pvc := range objects.Claims {
		result := Deleted{Kind: claims.Kind, Name: store.KeyOf(pvc)}
		volume, err := a.volumeOf(ctx, claims, pvc)
		if err != nil {
			return deleted, err
		}
		retain := volume != nil && volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain
		if retain && volume.Spec.CSI != nil {
			result.Retained = volume.Spec.CSI.VolumeHandle
		}
		gone, err := a.Client.Delete(ctx, claims, pvc.Namespace, pvc.Name, api.DeleteOptions{})
		if errors.Is(err, api.ErrNotFound) {
			result.Absent, err = true, nil
		} else if err == nil && !gone.Gone {
			err = a.AwaitGone(ctx, claims, pvc.Namespace, pvc.Name)
		}
		if err == nil && volume != nil && !retain {
			err = a.AwaitGone(ctx, volumeKind(), "", volume.Name)
		}
		if err != nil {
			return deleted, err
		}
		deleted = append(deleted, result)
	}
	for _, given := range plainOf(objects) {
		if given.Kind.Kind == "Namespace" { // others may be in it
			continue
		}
		_, err := a.Client.Delete(ctx, given.Kind, given.GetNamespace(), given.GetName(), api.DeleteOptions{})
		if err != nil && !errors.Is(err, api.ErrNotFound) {
			return deleted, err
		}
	}
	return deleted, nil
}

// volumeOf is the PersistentVolume of a claim, nil if there is none.
func (a *Attached) volumeOf(
	ctx context.Context, claims store.Kind, pvc *corev1.PersistentVolumeClaim,
) (*corev1.PersistentVolume, error) {
	object, err := a.Client.Get(ctx, claims, pvc.Namespace, pvc.Name)
	if errors.Is(err, api.ErrNotFound) {
		return nil, nil
	}
	known, ok := object.(*corev1.PersistentVolumeClaim)
	if err != nil || !ok || known.Spec.VolumeName == "" {
		return nil, err
	}
	object, err = a.Client.Get(ctx, volumeKind(), "", known.Spec.VolumeName)
	if errors.Is(err, api.ErrNotFound) {
		return nil, nil
	}
	volume, _ := object.(*corev1.PersistentVolume)
	return volume, err
}

func volumeKind() store.Kind { kind, _ := store.KindOf("persistentvolumes"); return kind }

// plainOf lists the objects other than claims and pods.
func plainOf(objects *manifest.Objects) []manifest.Object {
	return slices.DeleteFunc(slices.Clone(objects.All), func(given manifest.Object) bool {
		return given.Kind.Kind == "PersistentVolumeClaim" || given.Kind.Kind == "Pod"
	})
}
