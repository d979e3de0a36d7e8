package volumes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
)

// faults makes a driver fail before or after the effect of a call, and checks that
// calls for one volume do not overlap.
type faults struct {
	mu            sync.Mutex
	before, after []codes.Code // of the next calls that change something
	// process counts the starts of the host. A call of an earlier process may still be
	// running after a crash.
	process int
	busy    map[string]string // the call that runs, by process and volume
	overlap string
}

// callTime is how long a call for a volume takes, so that a second one would overlap.
const callTime = time.Millisecond

// exclusive takes time for a call that changes or deletes a volume.
func (m *faults) exclusive(ctx context.Context, rpc string, request any) {
	of, ok := request.(interface{ GetVolumeId() string })
	if !ok || ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	key := fmt.Sprintf("%d %s", m.process, of.GetVolumeId())
	if other := m.busy[key]; other != "" {
		m.overlap = fmt.Sprintf("%s was called during %s of volume %s", rpc, other, of.GetVolumeId())
	}
	m.busy[key] = rpc
	m.mu.Unlock()
	select {
	case <-time.After(callTime):
	case <-ctx.Done():
	}
	m.mu.Lock()
	delete(m.busy, key)
	m.mu.Unlock()
}

func (m *faults) take(list *[]codes.Code) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(*list) == 0 {
		return nil
	}
	code := (*list)[0]
	*list = (*list)[1:]
	if code == codes.OK {
		return nil
	}
	return csidriver.Fail(code, "asked to fail")
}

func changing(rpc string) bool {
	return slices.Contains([]string{
		"CreateVolume", "DeleteVolume", "CreateSnapshot", "DeleteSnapshot", "ControllerExpandVolume", "ControllerModifyVolume",
	}, rpc)
}

// machine is the model: the claims and snapshots that the user has created.
type machine struct {
	*daemon
	t      *rapid.T
	faults *faults
	made   int
}

// points are the failpoints of the controllers.
func points() []string {
	return []string{
		"host/provision/intent", "host/provision/begun", "host/provision/answered", "host/provision/called", "host/provision/recorded",
		"host/bind/chosen", "host/bind/recorded", "host/delete/intent", "host/delete/released",
		"host/reclaim/begin", "host/reclaim/called", "host/expand/intent", "host/expand/called", "host/modify/intent", "host/modify/called",
		"host/snapshot/intent", "host/snapshot/begun", "host/create-snapshot/intent", "host/create-snapshot/called", "host/create-snapshot/recorded",
		"host/snapshot-delete/intent", "host/snapshot-delete/begin", "host/snapshot-delete/called",
	}
}

func (m *machine) pick(what string, from []string) string {
	return from[rapid.IntRange(0, len(from)-1).Draw(m.t, what)]
}

func (m *machine) keys(resource string) (keys []string) {
	kind, _ := store.KindOf(resource)
	m.put(func(tx *store.Tx) error {
		objects, err := tx.Objects(kind).All()
		for _, object := range objects {
			keys = append(keys, store.KeyOf(object))
		}
		return err
	})
	return keys
}

// newClaim applies a claim, sometimes as a copy of a claim or a snapshot.
func (m *machine) newClaim() {
	m.made++
	name := fmt.Sprintf("c%d", m.made)
	var source *corev1.TypedLocalObjectReference
	switch kind := m.pick("source", []string{"none", "none", claimResource, snapshotResource}); kind {
	case claimResource, snapshotResource:
		if keys := m.keys(kind); len(keys) > 0 {
			group := snapshotv1.GroupName
			source = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim"}
			if kind == snapshotResource {
				source = &corev1.TypedLocalObjectReference{Kind: "VolumeSnapshot", APIGroup: &group}
			}
			_, source.Name, _ = splitKey(m.pick("of", keys))
		}
	}
	m.claim(name, protected, func(p *corev1.PersistentVolumeClaim) {
		p.UID = types.UID("uid-" + name)
		p.Spec.DataSource = source
		grow("1Gi")(p)
	})
}

func (m *machine) newSnapshot() {
	claims := m.keys(claimResource)
	if len(claims) == 0 {
		return
	}
	m.made++
	_, source, _ := splitKey(m.pick("of", claims))
	m.snapshot(fmt.Sprintf("s%d", m.made), source)
}

// changeOne has a bound claim ask for another size, other attributes or both.
func (m *machine) changeOne() {
	claims := m.keys(claimResource)
	if len(claims) == 0 {
		return
	}
	key := m.pick("claim", claims)
	size, class := m.pick("size", []string{"", "2Gi", "3Gi"}), m.pick("class", []string{"", "silver", "gold"})
	m.put(func(tx *store.Tx) error {
		pvc, err := tx.Claims().Get(key)
		if err != nil || pvc == nil || pvc.Status.Phase != corev1.ClaimBound {
			return err
		}
		if size != "" {
			grow(size)(pvc)
		}
		if class != "" {
			attributesNamed(class)(pvc)
		}
		return tx.Claims().Put(key, pvc)
	})
}

func (m *machine) eraseOne(resource string) {
	if keys := m.keys(resource); len(keys) > 0 {
		m.erase(resource, m.pick("which", keys))
	}
}

// crash ends the controllers at a failpoint and starts new ones.
func (m *machine) crash() {
	m.restart(m.pick("point", points()) + "=error")
}

func (m *machine) restart(terms string) {
	m.stop()
	m.faults.mu.Lock()
	m.faults.process++
	m.faults.mu.Unlock()
	m.start(terms)
}

// failCalls has the next calls of the driver fail, before or after their effect.
func (m *machine) failCalls() {
	code := func() codes.Code {
		return rapid.SampledFrom([]codes.Code{
			codes.OK, codes.Aborted, codes.DeadlineExceeded, codes.Unavailable, codes.Internal, codes.ResourceExhausted,
			codes.AlreadyExists, codes.FailedPrecondition, codes.PermissionDenied, codes.Unknown,
		}).Draw(m.t, "code")
	}
	m.faults.mu.Lock()
	defer m.faults.mu.Unlock()
	m.faults.before = append(m.faults.before, code())
	// Only what leaves the outcome open may come after the effect.
	if after := code(); slices.Contains([]codes.Code{codes.OK, codes.Aborted, codes.DeadlineExceeded, codes.Unavailable}, after) {
		m.faults.after = append(m.faults.after, after)
	}
}

// awaitIdle waits until nothing changes any more, and retries what failed at once.
func (m *machine) awaitIdle() {
	m.faults.mu.Lock()
	m.faults.before, m.faults.after = nil, nil
	m.faults.mu.Unlock()
	m.restart("") // no failpoints
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := m.atRest()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("the controllers do not become idle: %v; events: %v", err, m.events())
		}
		m.set.Retry()
		time.Sleep(20 * time.Millisecond)
	}
}

// atRest returns an error until the machine is at rest: every claim that can be bound is,
// deleted objects are gone, and the driver has exactly the volumes of the objects.
func (m *machine) atRest() error {
	volumes, snapshots := map[string]bool{}, map[string]bool{}
	err := m.store.View(func(tx *store.Tx) error {
		records, err := tx.Provisionings().All()
		if err != nil || len(records) > 0 {
			return errors.Join(err, fmt.Errorf("%d volumes are being made", len(records)))
		}
		claims, err := tx.Claims().All()
		if err != nil {
			return err
		}
		for _, pvc := range claims {
			switch {
			case pvc.DeletionTimestamp != nil && !m.stuck(tx, pvc):
				return fmt.Errorf("claim %s is being deleted, kept by %v", pvc.Name, pvc.Finalizers)
			case pvc.Status.Phase != corev1.ClaimBound && pvc.Spec.DataSource == nil:
				return fmt.Errorf("claim %s is %s", pvc.Name, pvc.Status.Phase)
			}
			if err := m.isChanged(tx, pvc); err != nil {
				return err
			}
		}
		pvs, err := tx.Volumes().All()
		for _, pv := range pvs {
			if pv.Status.Phase != corev1.VolumeBound {
				return fmt.Errorf("volume %s is %s", pv.Name, pv.Status.Phase)
			}
			volumes[pv.Spec.CSI.VolumeHandle] = true
		}
		if err != nil {
			return err
		}
		for _, snapshot := range all(m.world.t, tx.Snapshots()) {
			if snapshot.DeletionTimestamp != nil {
				return fmt.Errorf("snapshot %s is being deleted, kept by %v", snapshot.Name, snapshot.Finalizers)
			}
		}
		contents, err := tx.SnapshotContents().All()
		for _, content := range contents {
			if content.DeletionTimestamp != nil || content.Status == nil || !ok(content.Status.ReadyToUse) {
				if gone := get(m.world.t, tx.Volumes(), handleName(content)); gone != nil || content.DeletionTimestamp != nil {
					return fmt.Errorf("content %s: %+v", content.Name, content.Status)
				}
			}
			if handle := lifecycle.SnapshotHandle(content); handle != "" {
				snapshots[handle] = true
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, id := range m.driver.Volumes() {
		if !volumes[id] {
			return fmt.Errorf("volume %s is leaked", id)
		}
		delete(volumes, id)
	}
	for _, id := range m.driver.SnapshotsLeft() {
		if !snapshots[id] {
			return fmt.Errorf("snapshot %s is leaked", id)
		}
		delete(snapshots, id)
	}
	if len(volumes)+len(snapshots) > 0 {
		return fmt.Errorf("the driver lacks %v and %v", volumes, snapshots)
	}
	return nil
}

// isChanged returns an error unless the volume of a bound claim has the size and the
// attributes that the claim asks for, and the claim says so.
func (m *machine) isChanged(tx *store.Tx, pvc *corev1.PersistentVolumeClaim) error {
	if pvc.Status.Phase != corev1.ClaimBound || pvc.DeletionTimestamp != nil {
		return nil
	}
	pv, err := tx.Volumes().Get(pvc.Spec.VolumeName)
	if err != nil || pv == nil {
		return err
	}
	handle, size := pv.Spec.CSI.VolumeHandle, sizeOf(pv)
	desired := pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	if size.Cmp(desired) < 0 || m.driver.Size(handle) < size.Value() {
		return fmt.Errorf("claim %s asks for %s, its volume is said to have %s and has %d bytes",
			pvc.Name, desired.String(), size.String(), m.driver.Size(handle))
	}
	class := attributesClass(pvc)
	if class == "" {
		return nil
	}
	current := pvc.Status.CurrentVolumeAttributesClassName
	_, recorded := pvc.Annotations[modifyAnnotation]
	if current == nil || *current != class || volumeAttributesClass(pv) != class || recorded ||
		pvc.Status.ModifyVolumeStatus != nil || m.driver.Modified(handle)["class"] != class {
		return fmt.Errorf("claim %s asks for class %s; it has status %+v, the volume class %q and parameters %v",
			pvc.Name, class, pvc.Status, volumeAttributesClass(pv), m.driver.Modified(handle))
	}
	return nil
}

func all[T any](t *testing.T, table store.Table[T]) []*T {
	t.Helper()
	objects, err := table.All()
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// stuck: a claim whose snapshot can never be taken stays, as on a cluster.
func (m *machine) stuck(tx *store.Tx, pvc *corev1.PersistentVolumeClaim) bool {
	if !slices.Contains(pvc.Finalizers, sourceFinalizer) {
		return false
	}
	return slices.ContainsFunc(all(m.world.t, tx.Snapshots()), func(s *snapshotv1.VolumeSnapshot) bool { return !isReady(s) })
}

func handleName(content *snapshotv1.VolumeSnapshotContent) string {
	if content.Spec.Source.VolumeHandle == nil {
		return ""
	}
	return (*content.Spec.Source.VolumeHandle)[len("id-"):]
}

// After any sequence of applied and deleted objects, failures of the driver and
// stops of the host, the driver has exactly the volumes and snapshots that the
// objects describe, and no data of an existing claim is lost.
func TestControllers_leakNothingAndLoseNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		trouble := &faults{busy: map[string]string{}}
		d := newDaemon(t, modifies, growsWithoutNode, func(driver *csidriver.Driver) {
			driver.Before = func(ctx context.Context, rpc string, request any) error {
				if !changing(rpc) {
					return nil
				}
				trouble.exclusive(ctx, rpc, request)
				return trouble.take(&trouble.before)
			}
			driver.After = func(_ context.Context, rpc string, _ any) error {
				if !changing(rpc) {
					return nil
				}
				return trouble.take(&trouble.after)
			}
		})
		defer func() { d.stop() }()
		m := &machine{daemon: d, t: rt, faults: trouble}
		d.put(func(tx *store.Tx) error {
			return tx.SnapshotClasses().Put("snap", &snapshotv1.VolumeSnapshotClass{
				ObjectMeta: metav1.ObjectMeta{Name: "snap", Annotations: map[string]string{defaultSnapshotClass: "true"}},
				Driver:     "d.example", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
			})
		})
		for _, class := range []string{"silver", "gold"} {
			d.attributes(class, "d.example", map[string]string{"class": class})
		}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			switch m.pick("step", []string{
				"claim", "claim", "claim", "snapshot", "change", "change", "erase claim", "erase claim", "erase snapshot",
				"crash", "fail", "fail", "pause",
			}) {
			case "claim":
				m.newClaim()
			case "snapshot":
				m.newSnapshot()
			case "change":
				m.changeOne()
			case "erase claim":
				m.eraseOne(claimResource)
			case "erase snapshot":
				m.eraseOne(snapshotResource)
			case "crash":
				m.crash()
			case "fail":
				m.failCalls()
			case "pause":
				time.Sleep(time.Duration(rapid.IntRange(1, 30).Draw(rt, "ms")) * time.Millisecond)
			}
		}
		m.awaitIdle()
		// After the deletion of all claims and snapshots, no object and no volume remains.
		for _, key := range m.keys(snapshotResource) {
			m.erase(snapshotResource, key)
		}
		for _, key := range m.keys(claimResource) {
			m.erase(claimResource, key)
		}
		m.awaitIdle()
		if trouble.overlap != "" {
			rt.Fatal(trouble.overlap)
		}
		var remaining []string
		for _, resource := range []string{claimResource, volumeResource, snapshotResource, contentResource} {
			remaining = append(remaining, m.keys(resource)...)
		}
		if len(remaining) > 0 {
			rt.Fatalf("objects remain: %v; events: %v", remaining, m.events())
		}
	})
}
