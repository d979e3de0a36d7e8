package volumes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/metrics"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

func TestReasonOf(t *testing.T) {
	refused := fmt.Errorf("claim default/data: create: %w", &client.Error{Driver: "d.example", Code: "ResourceExhausted"})
	for _, c := range []struct {
		pending Pending
		want    string
	}{
		{Pending{Err: refused}, "ResourceExhausted"},
		{Pending{Err: refused, Running: true}, "ResourceExhausted"}, // a repeated attempt
		{Pending{Err: &blocked{error: refused}}, "ResourceExhausted"},
		{Pending{Running: true}, metrics.ReasonRunning},
		{Pending{}, metrics.ReasonWaiting},
		{Pending{Err: fmt.Errorf("no volume yet: %w", ErrWaiting)}, metrics.ReasonWaiting},
		{Pending{Err: errors.New("the state cannot be recorded")}, metrics.ReasonOther},
	} {
		if got := reasonOf(c.pending); got != c.want {
			t.Errorf("%+v has the reason %s, want %s", c.pending, got, c.want)
		}
	}
}

// waiting are the operations of objects that no queue has, as "kind driver reason".
func (d *daemon) waiting() []string {
	d.t.Helper()
	var pending []Pending
	d.manager.Waiting(func(one Pending) { pending = append(pending, one) })
	return d.operations(pending...)
}

func (d *daemon) operations(pending ...Pending) (texts []string) {
	d.t.Helper()
	found, err := d.manager.Operations(pending)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, one := range found {
		if one.Since.IsZero() {
			d.t.Errorf("%+v has no age", one)
		}
		texts = append(texts, strings.Join([]string{one.Kind, cmp.Or(one.Driver, "-"), one.Reason}, " "))
	}
	slices.Sort(texts)
	return texts
}

// A claim that the driver refuses is in no queue until its class changes. It is an
// operation all the same, until it is deleted.
func TestOperations_haveAClaimThatTheDriverRefuses(t *testing.T) {
	d := newDaemon(t, func(driver *csidriver.Driver) {
		driver.Before = func(_ context.Context, rpc string, _ any) error {
			if rpc == "CreateVolume" {
				return csidriver.Fail(codes.InvalidArgument, "size: no")
			}
			return nil
		}
	})
	key := d.claim("data", protected)
	d.awaitEvent("ProvisioningFailed", "size: no")
	want := []string{"provision d.example InvalidArgument"}
	for deadline := time.Now().Add(time.Minute); !slices.Equal(d.waiting(), want); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the operations are %v, want %v", d.waiting(), want)
		}
	}
	d.erase(claimResource, key)
	d.isGone(claimResource, key)
	if got := d.waiting(); len(got) > 0 {
		t.Errorf("after the deletion, there is %v", got)
	}
}

// The kind and the driver are those of the object, not of the controller.
func TestOperations_ofObjects(t *testing.T) {
	d := newDaemon(t)
	key := d.claim("data", protected)
	d.isBound(key)
	d.stop()
	pv := ""
	d.put(func(tx *store.Tx) error {
		bound := get(t, tx.Claims(), key)
		pv = bound.Spec.VolumeName
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name, pod.Status.Phase = "ns", "web", corev1.PodPending
		pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		return tx.Pods().Put("ns/web", pod)
	})
	failed := errors.New("failed")
	for _, c := range []struct {
		pending Pending
		want    string
	}{
		{Pending{Controller: claimResource, Key: key}, ""}, // bound: an inspection
		{Pending{Controller: claimResource, Key: key, Err: failed}, "provision d.example other"},
		{Pending{Controller: claimResource, Key: "ns/absent", Err: failed}, ""},
		{Pending{Controller: expansions, Key: key, Running: true}, "resize d.example running"},
		{Pending{Controller: modifications, Key: key}, "modify d.example waiting"},
		{Pending{Controller: growths, Key: key}, "resize_filesystem d.example waiting"},
		{Pending{Controller: volumeResource, Key: pv}, ""},
		{Pending{Controller: volumeResource, Key: pv, Err: failed}, "delete d.example other"},
		{Pending{Controller: republications, Key: "r.example", Err: failed}, "republish r.example other"},
		{Pending{Controller: leftovers, Key: leftoverPod + "unknown", Err: failed}, "unmount - other"},
		{Pending{Controller: podResource, Key: "ns/web", Running: true}, "mount d.example running"},
		{Pending{Controller: "another", Key: key, Err: failed}, ""},
	} {
		if got := strings.Join(d.operations(c.pending), ", "); got != c.want {
			t.Errorf("%+v is %q, want %q", c.pending, got, c.want)
		}
	}
	for _, kind := range []string{metrics.KindProvision, metrics.KindResize, metrics.KindModify, metrics.KindResizeFilesystem,
		metrics.KindDelete, metrics.KindRepublish, metrics.KindUnmount, metrics.KindMount, metrics.KindSnapshot, metrics.KindDeleteSnapshot} {
		if !slices.Contains(metrics.HostKinds(), kind) {
			t.Errorf("kind %s is not among those of a host", kind)
		}
	}
}
