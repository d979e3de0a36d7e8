package kube

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/simulation/apiserver"
	"github.com/holdfast-csi/holdfast/simulation/csidriver"
	"github.com/holdfast-csi/holdfast/simulation/lab"
)

// Faults of calls of the driver.
const (
	unavailable = "unavailable"
	aborted     = "busy"
	exhausted   = "full"
	broke       = "internal error"
	answerLost  = "answer lost"
	answerLate  = "answer late"
	effectLater = "times out, takes effect later"
)

// storage is the storage system behind the driver.
type storage struct {
	world *World
	// full and readOnly are lasting states.
	full, readOnly bool
	later          *lab.Process // effects whose callers have left
	// bare are volumes that an administrator left without an object.
	bare map[string]bool
	// forced are attachments whose VolumeAttachment was removed by force.
	forced map[string]bool
	// racing are those of them of which no VolumeAttachment has a finalizer again: a process
	// that has begun to publish cannot know that.
	racing map[string]bool
	// busy are the volumes and snapshots that have a call in progress: another one is
	// rejected, as a driver must, until the first has had its effect.
	mu   sync.Mutex
	busy map[string]bool
}

func newStorage(w *World) *storage {
	return &storage{world: w, later: w.lab.Process("storage"), bare: map[string]bool{}, forced: map[string]bool{}, racing: map[string]bool{}, busy: map[string]bool{}}
}

// begin begins a call for a volume or snapshot; ok is false if there is one in progress.
func (s *storage) begin(rpc, subject string) (end func(), ok bool) {
	if strings.HasPrefix(rpc, "List") || strings.HasPrefix(rpc, "Get") {
		return func() {}, true
	}
	key, _, _ := strings.Cut(strings.TrimPrefix(subject, "id-"), " ")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[key] {
		return nil, false
	}
	s.busy[key] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.busy, key)
	}, true
}

// asks reports whether a call only reads what does not change.
func asks(rpc string) bool {
	return strings.HasSuffix(rpc, "Capabilities") || rpc == "GetPluginInfo" || rpc == "Probe" || rpc == "NodeGetInfo"
}

// subject is the object of a call, for the key of its step.
func subject(request any) string {
	switch r := request.(type) {
	case interface{ GetName() string }:
		return r.GetName()
	case *csi.ControllerPublishVolumeRequest:
		return r.GetVolumeId() + " " + r.GetNodeId()
	case *csi.ControllerUnpublishVolumeRequest:
		return r.GetVolumeId() + " " + r.GetNodeId()
	case interface{ GetVolumeId() string }:
		return r.GetVolumeId()
	case interface{ GetSnapshotId() string }:
		return r.GetSnapshotId()
	}
	return ""
}

// intercept orders the calls of a process.
func (w *World) intercept(p *process) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		rpc := path.Base(info.FullMethod)
		if asks(rpc) {
			if p.Dead() {
				return nil, csidriver.Fail(codes.Unavailable, "the connection broke")
			}
			return w.call(ctx, p, request, info, handler)
		}
		w.checkCall(p, rpc, request)
		// A call that was sent has its effect also if the caller has left.
		ctx = context.WithoutCancel(ctx)
		step := lab.Step{Kind: rpc, Object: subject(request), Faults: faultsOfCall(rpc)}
		if rpc == "CreateVolume" {
			step.Object = p.withNode(step.Object)
		}
		end, ok := w.storage.begin(rpc, step.Object)
		if !ok {
			return nil, csidriver.Fail(codes.Aborted, "another operation is in progress")
		}
		fault, err := p.Pass(ctx, step)
		if err != nil {
			end()
			return nil, csidriver.Fail(codes.Unavailable, "the connection broke")
		}
		w.setSubject(step.Object)
		call := func() (any, error) {
			defer end()
			return w.execute(ctx, p, rpc, request, info, handler)
		}
		if !w.takesEffect(fault) {
			end()
		}
		return w.answer(ctx, p, step, fault, call)
	}
}

// takesEffect reports whether a call with a fault is executed.
func (w *World) takesEffect(fault string) bool {
	return fault == "" || fault == answerLost || fault == answerLate || fault == effectLater
}

func faultsOfCall(rpc string) []string {
	if strings.HasPrefix(rpc, "List") || strings.HasPrefix(rpc, "Get") {
		return []string{unavailable, broke}
	}
	faults := []string{unavailable, aborted, broke, answerLost, answerLost, answerLate, effectLater}
	if strings.HasPrefix(rpc, "Create") || rpc == "ControllerExpandVolume" {
		faults = append(faults, exhausted)
	}
	return faults
}

// answer executes a call and gives the answer that the fault leaves.
func (w *World) answer(ctx context.Context, p *process, step lab.Step, fault string, call func() (any, error)) (any, error) {
	switch fault {
	case unavailable:
		return nil, csidriver.Fail(codes.Unavailable, "injected: unavailable")
	case aborted:
		return nil, csidriver.Fail(codes.Aborted, "injected: an operation is in progress")
	case exhausted:
		return nil, csidriver.Fail(codes.ResourceExhausted, "injected: no room")
	case broke:
		return nil, csidriver.Fail(codes.Internal, "injected: internal error")
	case effectLater:
		w.running.Go(func() {
			// At the end of the world it has its effect, too.
			_, _ = w.storage.later.Pass(ctx, lab.Step{Kind: "effect of " + step.Kind, Object: step.Object})
			_, _ = call()
		})
		return nil, csidriver.Fail(codes.DeadlineExceeded, "injected: timed out")
	}
	result, err := call()
	switch {
	case err != nil:
		return nil, err
	case fault == "" && step.Kind == "ControllerPublishVolume":
		p.owes.publishes(step.Object)
	case fault == answerLost:
		return nil, csidriver.Fail(codes.Unavailable, "injected: the answer was lost")
	case fault == answerLate:
		if _, err := p.Pass(ctx, lab.Step{Kind: "answer of " + step.Kind, Object: step.Object}); err != nil {
			return nil, csidriver.Fail(codes.Unavailable, "the connection broke")
		}
	}
	return result, nil
}

// execute has a call take effect, unless the storage cannot.
func (w *World) execute(
	ctx context.Context, p *process, rpc string, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	creates := strings.HasPrefix(rpc, "Create")
	switch {
	case w.storage.readOnly && !strings.HasPrefix(rpc, "List") && !strings.HasPrefix(rpc, "Get"):
		return nil, csidriver.Fail(codes.Internal, "the storage is read-only")
	case w.storage.full && creates && !w.exists(p, request):
		return nil, csidriver.Fail(codes.ResourceExhausted, "the storage is full")
	}
	w.checkEffect(rpc, request)
	return w.call(ctx, p, request, info, handler)
}

func (w *World) exists(p *process, request any) bool {
	create, ok := request.(*csi.CreateVolumeRequest)
	_, there := w.driver.Volumes()[p.withNode(create.GetName())]
	return ok && there
}

// checkCall checks what a process begins.
func (w *World) checkCall(p *process, rpc string, request any) {
	if !strings.HasPrefix(rpc, "List") && !strings.HasPrefix(rpc, "Get") {
		w.checkLeader(p, rpc+" "+subject(request))
		w.checkNode(p, rpc, request)
	}
	switch r := request.(type) {
	case *csi.DeleteVolumeRequest:
		for _, node := range w.driver.Attachments()[r.GetVolumeId()] {
			if !w.storage.isForced(r.GetVolumeId(), node) {
				w.violate("%s deletes volume %s, which is published to %s", p.Name(), r.GetVolumeId(), node)
			}
		}
		if why := w.needed(p, r.GetVolumeId()); why != "" {
			w.violate("%s deletes volume %s, which %s", p.Name(), r.GetVolumeId(), why)
		}
	case *csi.DeleteSnapshotRequest:
		if why := w.snapshotNeeded(p, r.GetSnapshotId()); why != "" {
			w.violate("%s deletes snapshot %s, which %s", p.Name(), r.GetSnapshotId(), why)
		}
	case *csi.CreateVolumeRequest:
		if w.outrun() { // the Lease was deleted: another process may have undone the intent, or does so now
			w.storage.leave("id-" + r.GetName())
		}
	case *csi.ControllerUnpublishVolumeRequest:
		p.owes.pay(r.GetVolumeId() + " " + r.GetNodeId())
		w.checkUnpublish(p, r)
	case *csi.ControllerPublishVolumeRequest:
		if !w.recorded(r.GetVolumeId(), r.GetNodeId()) && !w.storage.racing[r.GetVolumeId()+" "+r.GetNodeId()] {
			w.violate("%s publishes volume %s to %s, and no VolumeAttachment with a finalizer records it", p.Name(), r.GetVolumeId(), r.GetNodeId())
		}
	}
}

// checkUnpublish checks that no process unpublishes a volume that a VolumeAttachment needs. One that
// was paused, or outrun, cannot know that.
func (w *World) checkUnpublish(p *process, r *csi.ControllerUnpublishVolumeRequest) {
	for _, va := range w.attachmentsOf(r.GetVolumeId()) {
		needed := "id-"+va.Spec.NodeName == r.GetNodeId() && va.Status.Attached && va.DeletionTimestamp == nil
		if needed && !p.paused.Load() && !p.outrun.Load() {
			w.violate("%s unpublishes volume %s from %s, whose VolumeAttachment is attached", p.Name(), r.GetVolumeId(), r.GetNodeId())
		}
	}
}

// checkEffect checks what happens at the storage.
func (w *World) checkEffect(rpc string, request any) {
	publish, ok := request.(*csi.ControllerPublishVolumeRequest)
	if !ok || rpc != "ControllerPublishVolume" {
		return
	}
	for _, node := range w.driver.Attachments()[publish.GetVolumeId()] {
		if node != publish.GetNodeId() && !w.storage.isForced(publish.GetVolumeId(), node) && singleNode(publish.GetVolumeCapability()) && !w.recorded(publish.GetVolumeId(), node) {
			w.violate("volume %s is published to %s, and is still published to %s without a VolumeAttachment", publish.GetVolumeId(), publish.GetNodeId(), node)
		}
	}
}

func singleNode(capability *csi.VolumeCapability) bool {
	return strings.HasPrefix(capability.GetAccessMode().GetMode().String(), "SINGLE_NODE")
}

// needed says why a volume must not be deleted; "" if it may be.
func (w *World) needed(p *process, handle string) string {
	var kept []string
	used := ""
	for _, pv := range all[*corev1.PersistentVolume](w.mirror, volumes) {
		if pv.Spec.CSI == nil || pv.Spec.CSI.VolumeHandle != handle {
			continue
		}
		if pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
			kept = append(kept, about(volumes, pv.Name))
		}
		ref := pv.Spec.ClaimRef
		if ref == nil || ref.UID == "" {
			continue
		}
		pvc, ok := get[*corev1.PersistentVolumeClaim](w.mirror, claims, ref.Namespace, ref.Name)
		if ok && pvc.UID == ref.UID && pvc.Spec.VolumeName == pv.Name && pv.DeletionTimestamp == nil {
			used = fmt.Sprintf("PersistentVolume %s names for claim %s", pv.Name, pvc.Name)
		}
	}
	if key := w.retained.begins(p, handle, kept); key != "" {
		return key + " retains"
	}
	if w.retained.lost(handle) {
		return ""
	}
	return used
}

// snapshotNeeded says why a snapshot must not be deleted; "" if it may be.
func (w *World) snapshotNeeded(p *process, handle string) string {
	var kept []string
	for _, content := range all[*snapshotv1.VolumeSnapshotContent](w.mirror, contents) {
		if snapshotOf(content) == handle && content.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentRetain {
			kept = append(kept, about(contents, content.Name))
		}
	}
	if key := w.retained.begins(p, handle, kept); key != "" {
		return key + " retains"
	}
	return ""
}

// recorded reports whether a VolumeAttachment with the finalizer is of a volume and a node.
func (w *World) recorded(handle, node string) bool {
	for _, va := range w.attachmentsOf(handle) {
		if "id-"+va.Spec.NodeName == node && len(va.Finalizers) > 0 {
			return true
		}
	}
	return false
}

// leave notes that a volume may be left without an object.
func (s *storage) leave(handle string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bare[handle] = true
}

// isLeft reports whether the volume of a claim may be left without an object: two processes may
// then have asked for it with different parameters.
func (s *storage) isLeft(uid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for handle := range s.bare {
		if name, _, _ := strings.Cut(handle, "@"); name == "id-pvc-"+uid {
			return true
		}
	}
	return false
}

// isBusy reports whether a volume or snapshot has a call in progress.
func (s *storage) isBusy(handle string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.busy[strings.TrimPrefix(handle, "id-")]
}

// isForced reports whether an administrator removed the VolumeAttachment of a volume by force.
func (s *storage) isForced(handle, node string) bool { return s.forced[handle+" "+node] }

// observeVolume notes the volumes whose PersistentVolumes were deleted with policy Retain:
// they stay without an object. So does one that was given up and deleted before the controllers
// could protect it again.
func (w *World) observeVolume(c apiserver.Change) {
	w.observeAttachment(c)
	w.observeIntents(c)
	w.observeContent(c)
	if c.Resource != volumes {
		return
	}
	meta, _ := c.Object["metadata"].(map[string]any)
	spec, _ := c.Object["spec"].(map[string]any)
	source, _ := spec["csi"].(map[string]any)
	handle, _ := source["volumeHandle"].(string)
	if c.Event == "ADDED" && w.outrun() {
		// The Lease was deleted, and two processes work: one saves a volume that was saved by the
		// other, retained and deleted, and neither can know that.
		w.retained.givesUp(handle)
	}
	unprotected := false
	if spec["persistentVolumeReclaimPolicy"] == "Retain" {
		w.gone.kept[c.Name] = true
	}
	if (meta["deletionTimestamp"] != nil || c.Event == "DELETED") && !w.gone.volumes[c.Name] {
		w.gone.volumes[c.Name] = true
		finalizers, _ := meta["finalizers"].([]any)
		// Once its policy was Retain, or it was written by hand, the controllers have no finalizer
		// until they see that the volume is to go with it, and add none while they delete it.
		byHand := w.gone.kept[c.Name] || strings.HasPrefix(c.Name, moved)
		unprotected = byHand && !slices.Contains(finalizers, any(claim.ProvisionerFinalizer))
	}
	left := handle != "" && c.Event == "DELETED" && spec["persistentVolumeReclaimPolicy"] == "Retain" && !w.hasVolume(handle)
	if left && !w.claimedAgain(spec) {
		w.retained.ends(about(volumes, c.Name), handle)
	}
	if left || handle != "" && unprotected {
		w.storage.leave(handle)
	}
}

// claimedAgain reports whether the claim of a PersistentVolume that is gone was not bound to it: it
// gets the volume again, whose name is that of the claim.
func (w *World) claimedAgain(spec map[string]any) bool {
	ref, _ := spec["claimRef"].(map[string]any)
	inside, _ := ref["namespace"].(string)
	named, _ := ref["name"].(string)
	pvc, ok := get[*corev1.PersistentVolumeClaim](w.mirror, claims, inside, named)
	return ok && string(pvc.UID) == ref["uid"] && pvc.Spec.VolumeName == ""
}

// observeContent notes the snapshots whose contents were deleted with policy Retain.
func (w *World) observeContent(c apiserver.Change) {
	if c.Resource != contents || c.Event != "DELETED" {
		return
	}
	spec, _ := c.Object["spec"].(map[string]any)
	status, _ := c.Object["status"].(map[string]any)
	if handle, _ := status["snapshotHandle"].(string); handle != "" && spec["deletionPolicy"] == "Retain" {
		w.retained.ends(about(contents, c.Name), handle)
	}
}

// hasVolume reports whether a PersistentVolume names a volume.
func (w *World) hasVolume(handle string) bool {
	return slices.ContainsFunc(all[*corev1.PersistentVolume](w.mirror, volumes), func(pv *corev1.PersistentVolume) bool {
		return pv.Spec.CSI != nil && pv.Spec.CSI.VolumeHandle == handle
	})
}

// named reports whether a PersistentVolume or an intent names a volume.
func (w *World) named(volume, handle string) bool {
	if w.hasVolume(handle) {
		return true
	}
	return slices.ContainsFunc(all[*corev1.ConfigMap](w.mirror, configMaps), func(stored *corev1.ConfigMap) bool {
		name, _, _ := strings.Cut(volume, "@")
		_, ok := stored.Data[strings.TrimPrefix(name, "pvc-")]
		return ok
	})
}
