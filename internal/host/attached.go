package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

// Attached is Run by way of a host that serves the root directory: that one
// brings the volumes, and this process runs the containers.
type Attached struct {
	Client *api.Client
	// Root is the host's root directory.
	Root string

	mu     sync.Mutex
	leases map[types.UID]held
}

// held is a pod's lease, with what it was asked with.
type held struct {
	request api.HoldRequest
	lease   *api.Lease
}

// Run is Host.Run.
func (a *Attached) Run(ctx context.Context, objects *manifest.Objects, output Output) (int, error) {
	var files []manifest.File
	for _, given := range objects.All {
		if given.Kind.Kind == "Pod" {
			continue // a hold makes it
		}
		data, err := json.Marshal(given.Object)
		if err != nil {
			return 0, err
		}
		files = append(files, manifest.File{Name: given.Name(), Data: data})
	}
	if len(files) > 0 {
		if _, err := a.Client.Apply(ctx, files, api.ApplyOptions{}); err != nil {
			return 0, err
		}
	}
	mount := func(ctx context.Context, pod *corev1.Pod) (map[string]workload.Volume, error) {
		return a.mount(ctx, pod, output.Warn)
	}
	// The host answers no caller with the data of a Secret: those that containers
	// refer to have to be in the files.
	secret := func(key string) (*corev1.Secret, error) {
		for _, given := range objects.All {
			if found, ok := given.Object.(*corev1.Secret); ok && store.KeyOf(found) == key {
				return found, nil
			}
		}
		return nil, nil
	}
	runner := podRunner{mount: mount, unmount: a.unmount, scratch: a.scratch, secret: secret, hide: []string{a.Root}, node: machineName()}
	return runner.runPods(ctx, objects.Pods, output)
}

// mount holds a pod's volumes; the pod gets the UID that the host gave it.
func (a *Attached) mount(ctx context.Context, pod *corev1.Pod, warn func(string)) (map[string]workload.Volume, error) {
	request := api.HoldRequest{
		Namespace: pod.Namespace, Name: pod.Name, Pod: pod,
		Holder: fmt.Sprintf("holdfast run (process %d)", os.Getpid()),
	}
	lease, err := a.Client.Lease(ctx, request)
	if err != nil {
		return nil, err
	}
	for _, warning := range lease.Warnings {
		warn(warning)
	}
	pod.UID = types.UID(lease.UID)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leases == nil {
		a.leases = map[types.UID]held{}
	}
	a.leases[pod.UID] = held{request: request, lease: lease}
	volumes := map[string]workload.Volume{}
	for name, place := range lease.Volumes {
		volumes[name] = workload.Volume{Path: place.Path, Block: place.Block, ReadOnly: place.ReadOnly}
	}
	return volumes, nil
}

// unmount gives a pod's volumes back; without a lease there is nothing to give.
func (a *Attached) unmount(ctx context.Context, pod *corev1.Pod) error {
	a.mu.Lock()
	has, is := a.leases[pod.UID]
	delete(a.leases, pod.UID)
	a.mu.Unlock()
	if !is {
		return nil
	}
	return endLease(ctx, a.Client, has.request, has.lease)
}

func (a *Attached) scratch(pod *corev1.Pod, container string) (string, error) {
	a.mu.Lock()
	has, is := a.leases[pod.UID]
	a.mu.Unlock()
	if !is {
		return "", fmt.Errorf("pod %s is not held", store.KeyOf(pod))
	}
	directory := filepath.Join(has.lease.Directory, container)
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return "", fmt.Errorf("make the container's directory: %w", err)
	}
	return directory, nil
}

// Delete begins the deletion of what Host.Delete deletes, claims first, and
// tells of each what became of it. Wait is called for each that is not gone yet.
func (a *Attached) Delete(ctx context.Context, objects *manifest.Objects, wait func(ctx context.Context, kind store.Kind, namespace, name string) error) ([]Deleted, error) {
	var deleted []Deleted
	claims, _ := store.KindOf("persistentvolumeclaims")
	for _, pvc := range objects.Claims {
		result := Deleted{Kind: claims.Kind, Name: store.KeyOf(pvc)}
		var err error
		if result.Retained, err = a.retained(ctx, claims, pvc); err != nil {
			return deleted, err
		}
		gone, err := a.Client.Delete(ctx, claims, pvc.Namespace, pvc.Name, api.DeleteOptions{})
		if errors.Is(err, api.ErrNotFound) {
			result.Absent, err = true, nil
		} else if err == nil && !gone.Gone {
			err = wait(ctx, claims, pvc.Namespace, pvc.Name)
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

// retained is the handle of a claim's volume that stays when the claim goes.
func (a *Attached) retained(ctx context.Context, claims store.Kind, pvc *corev1.PersistentVolumeClaim) (string, error) {
	object, err := a.Client.Get(ctx, claims, pvc.Namespace, pvc.Name)
	if errors.Is(err, api.ErrNotFound) {
		return "", nil
	}
	known, is := object.(*corev1.PersistentVolumeClaim)
	if err != nil || !is || known.Spec.VolumeName == "" {
		return "", err
	}
	kind, _ := store.KindOf("persistentvolumes")
	object, err = a.Client.Get(ctx, kind, "", known.Spec.VolumeName)
	if errors.Is(err, api.ErrNotFound) {
		return "", nil
	}
	volume, is := object.(*corev1.PersistentVolume)
	if err != nil || !is || volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || volume.Spec.CSI == nil {
		return "", err
	}
	return volume.Spec.CSI.VolumeHandle, nil
}
