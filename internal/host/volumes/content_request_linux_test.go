package volumes

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// snapshotClass stores the class of snapshots, or replaces it.
func (d *daemon) snapshotClass(parameters map[string]string) {
	d.t.Helper()
	d.put(func(tx *store.Tx) error {
		return tx.SnapshotClasses().Put("snap", &snapshotv1.VolumeSnapshotClass{
			ObjectMeta: metav1.ObjectMeta{Name: "snap", Annotations: map[string]string{defaultSnapshotClass: "true"}},
			Driver:     "d.example", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete, Parameters: parameters,
		})
	})
}

// snapshotCalls has the parameters of the calls for a snapshot; the first ends with fail.
type snapshotCalls struct {
	mu         sync.Mutex
	parameters []map[string]string
	fail       error
	changed    chan struct{} // the second call waits for it
}

func (c *snapshotCalls) before(_ context.Context, _ string, request any) error {
	create, ok := request.(*csi.CreateSnapshotRequest)
	if !ok {
		return nil
	}
	c.mu.Lock()
	c.parameters = append(c.parameters, maps.Clone(create.GetParameters()))
	number := len(c.parameters)
	c.mu.Unlock()
	if number == 1 {
		<-c.changed
		return c.fail
	}
	return nil
}

func (c *snapshotCalls) all() []map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.parameters)
}

func (c *snapshotCalls) count() int { return len(c.all()) }

// A call with an uncertain outcome, or one for a snapshot that is not ready, is repeated
// with the same parameters, even if its class was replaced or deleted.
func TestSnapshot_repeatsTheParametersOfTheFirstCall(t *testing.T) {
	for name, become := range map[string]func(d *daemon){
		"changed": func(d *daemon) { d.snapshotClass(map[string]string{"speed": "2"}) },
		"gone":    func(d *daemon) { d.put(func(tx *store.Tx) error { return tx.SnapshotClasses().Delete("snap") }) },
	} {
		t.Run(name, func(t *testing.T) {
			calls := &snapshotCalls{fail: csidriver.Fail(codes.DeadlineExceeded, "slow"), changed: make(chan struct{})}
			d := newDaemon(t, func(driver *csidriver.Driver) {
				driver.Before = calls.before
				driver.Snapshots.UnreadyAnswers = 2
			})
			d.isBound(d.claim("data", protected))
			d.snapshotClass(map[string]string{"speed": "1"})
			d.snapshot("s", "data")
			d.until("the driver is asked", func(*store.Tx) bool { return calls.count() == 1 })
			become(d)
			close(calls.changed)
			d.until("it is ready", func(tx *store.Tx) bool {
				status := get(t, tx.Snapshots(), "ns/s").Status
				return status != nil && ok(status.ReadyToUse)
			})
			for _, parameters := range calls.all() {
				if !maps.Equal(parameters, map[string]string{"speed": "1"}) {
					t.Errorf("asked with %v", calls.all())
					break
				}
			}
			if calls.count() < 3 {
				t.Errorf("asked %d times", calls.count())
			}
			d.until("the parameters are removed", func(tx *store.Tx) bool {
				_, kept := get(t, tx.SnapshotContents(), "snapcontent-uid-s").Annotations[parametersAnnotation]
				return !kept
			})
		})
	}
}

// After a rejected request, the next one has the parameters that the class has then.
func TestSnapshot_isAskedForAnewAfterARefusal(t *testing.T) {
	calls := &snapshotCalls{fail: csidriver.Fail(codes.InvalidArgument, "speed: 1 is none"), changed: make(chan struct{})}
	d := newDaemon(t, func(driver *csidriver.Driver) { driver.Before = calls.before })
	d.isBound(d.claim("data", protected))
	d.snapshotClass(map[string]string{"speed": "1"})
	d.snapshot("s", "data")
	d.until("the driver is asked", func(*store.Tx) bool { return calls.count() == 1 })
	d.snapshotClass(map[string]string{"speed": "2"})
	close(calls.changed)
	d.awaitEvent("SnapshotReady", "ns/s")
	if last := calls.all()[calls.count()-1]; last["speed"] != "2" {
		t.Errorf("asked with %v", last)
	}
}

// A step may repeat its call before the content is read again. Then an error of the
// second call says nothing about the first.
func TestSnapshot_aStepThatRepeatsItsCallForgetsNothing(t *testing.T) {
	var d *daemon
	d = newDaemon(t, func(driver *csidriver.Driver) {
		driver.Before = func(_ context.Context, rpc string, _ any) error {
			if rpc == "CreateSnapshot" && driver.Count(rpc) == 2 {
				d.erase(snapshotResource, "ns/s")
				return csidriver.Fail(codes.Internal, "throttled")
			}
			return nil
		}
		driver.After = func(_ context.Context, rpc string, _ any) error {
			if rpc == "CreateSnapshot" && driver.Count(rpc) == 1 {
				return csidriver.Fail(codes.DeadlineExceeded, "the answer was lost")
			}
			return nil
		}
	})
	d.isBound(d.claim("data", protected))
	d.snapshotClass(nil)
	d.snapshot("s", "data")
	d.until("the content is gone", func(tx *store.Tx) bool {
		return d.driver.Count("CreateSnapshot") > 1 && get(t, tx.SnapshotContents(), "snapcontent-uid-s") == nil
	})
	if left := d.driver.SnapshotsLeft(); left != nil {
		t.Errorf("left at the driver: %q", left)
	}
}

// Two contents of one snapshot that are both deleted with it do not wait for each other.
func TestSnapshot_bothItsContentsAreDeleted(t *testing.T) {
	d := newDaemon(t)
	id, keys := d.driver.AddSnapshot("old", "vol"), claim.VolumeSnapshotKeys()
	d.put(func(tx *store.Tx) error {
		for _, name := range []string{"a", "b"} {
			now := metav1.Now()
			content := &snapshotv1.VolumeSnapshotContent{
				ObjectMeta: metav1.ObjectMeta{
					Name: name, UID: types.UID("uid-" + name), DeletionTimestamp: &now,
					Finalizers: []string{keys.Finalizer}, Annotations: map[string]string{keys.BeingDeleted: "yes"},
				},
				Spec: snapshotv1.VolumeSnapshotContentSpec{
					Driver: "d.example", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
					Source: snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: &id},
				},
				Status: &snapshotv1.VolumeSnapshotContentStatus{SnapshotHandle: &id},
			}
			if err := tx.SnapshotContents().Put(name, content); err != nil {
				return err
			}
		}
		return nil
	})
	d.isGone(contentResource, "a")
	d.isGone(contentResource, "b")
	if left := d.driver.SnapshotsLeft(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
