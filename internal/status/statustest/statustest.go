// Package statustest has a machine whose status page is tested: a real store, a real
// journal and the real API of a host, without controllers and drivers.
package statustest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/status"
)

// Driver is the driver of the machine's volumes.
const Driver = "d.example"

// Machine is a host's API over objects that a test gives.
type Machine struct {
	Store   *store.Store
	Journal *journal.Journal
	Source  *status.Host
}

// New serves the API until the test ends.
func New(t testing.TB) *Machine {
	t.Helper()
	root, logger := t.TempDir(), slog.New(slog.DiscardHandler)
	m := &Machine{}
	var err error
	if m.Store, err = store.Open(root); err != nil {
		t.Fatal(err)
	}
	if m.Journal, err = journal.Open(root, logger); err != nil {
		t.Fatal(err)
	}
	options := api.Options{Store: m.Store, Journal: m.Journal, Host: host{}, Logger: logger}
	listener, err := api.Listen(t.Context(), filepath.Join(root, api.SocketName), options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := api.NewServer(options).Serve(ctx, listener); err != nil {
			t.Error(err)
		}
	})
	client := api.DialRoot(root)
	t.Cleanup(func() {
		client.Close()
		cancel()
		serving.Wait()
		if err := errors.Join(m.Journal.Close(), m.Store.Close()); err != nil {
			t.Error(err)
		}
	})
	if m.Source, err = status.NewHost(client, "test"); err != nil {
		t.Fatal(err)
	}
	return m
}

// host has one driver, and no work.
type host struct{ api.Host }

func (host) Drivers() []api.Driver {
	return []api.Driver{{Name: Driver, Instances: []api.DriverInstance{{State: "registered", Serving: true, Version: "1.2.3"}}}}
}

func (host) State(store.Kind, string) []api.WorkState { return nil }

func (host) Drain(context.Context) error { return nil }

func (host) Mounts(context.Context, string) ([]api.Mount, error) { return nil, nil }

// Put writes objects.
func (m *Machine) Put(t testing.TB, objects ...store.Object) {
	t.Helper()
	err := m.Store.Update(func(tx *store.Tx) error {
		for _, object := range objects {
			kind, ok := kindOf(object)
			if !ok {
				return fmt.Errorf("%T is not a kind", object)
			}
			if err := tx.Objects(kind).Put(store.KeyOf(object), object); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func kindOf(object store.Object) (store.Kind, bool) {
	for _, kind := range store.Kinds() {
		if fmt.Sprintf("%T", kind.New()) == fmt.Sprintf("%T", object) {
			return kind, true
		}
	}
	return store.Kind{}, false
}

// Claim is a claim that waits for its volume.
func Claim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name),
			CreationTimestamp: created(),
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("fast"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: capacity()},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
}

// created is days ago, so that the age of an object does not change during a test.
func created() metav1.Time {
	return metav1.NewTime(time.Now().Add(-84 * time.Hour).Truncate(time.Second))
}

func capacity() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}

// Bound is a claim with its volume.
func Bound(name string) []store.Object {
	claim := Claim(name)
	claim.Spec.VolumeName, claim.Status.Phase, claim.Status.Capacity = "pvc-"+name, corev1.ClaimBound, capacity()
	return []store.Object{claim, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName, UID: types.UID("uid-pv-" + name), CreationTimestamp: claim.CreationTimestamp},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: capacity(), AccessModes: claim.Spec.AccessModes, StorageClassName: "fast",
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "default", Name: name, UID: claim.UID},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: Driver, VolumeHandle: "vol-" + name, VolumeAttributes: map[string]string{},
			}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}}
}

// Pod is a pod that uses a claim and waits.
func Pod(name, claim string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name),
			CreationTimestamp: created(),
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: "none"}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// Step is a step of a claim.
func Step(claim, name string, state journal.Status, took time.Duration) journal.StepEntry {
	return journal.StepEntry{
		About:  []journal.Ref{{Kind: "PersistentVolumeClaim", Key: "default/" + claim, UID: "uid-" + claim}},
		Volume: "claim default/" + claim, Driver: Driver, Step: name, Status: state, Took: took,
	}
}
