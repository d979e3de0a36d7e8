package volumes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/host/journal"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// growNode grows the filesystem of a claim's volume, if that is due, at the path where
// it is published: for the pod with this UID, or for any pod if that is empty. A pod gets
// its volume even if the driver calls the size infeasible, or refuses to grow a volume
// that is in use.
func (m *Manager) growNode(ctx context.Context, key string, pod types.UID) error {
	found, err := m.boundClaim(key)
	if err != nil || found.volume == nil || found.volume.Spec.CSI == nil || !claim.NodeResizeDue(found.claim) {
		return err
	}
	name := newUse(found.volume).Name
	unlock, err := m.lock(ctx, "volume "+name)
	if err != nil {
		return err
	}
	defer unlock()
	use, err := m.useNamed(name)
	if err != nil || use == nil {
		return err
	}
	// The previous holder of the lock may have grown it.
	if found, err = m.boundClaim(key); err != nil || found.volume == nil || !claim.NodeResizeDue(found.claim) {
		return err
	}
	size := found.claim.Status.AllocatedResources[corev1.ResourceStorage]
	path, target := publishedFor(use, pod)
	if path == "" || size.IsZero() || use.ExpandRefused == size.String() {
		return nil
	}
	g := growth{key: key, found: found, use: use, path: path, size: size, about: claimAbout(found.claim)}
	if target.ReadOnly {
		m.recordEventf(g.about, true, "FileSystemResizeFailed",
			"the volume is used read-only: its filesystem cannot grow before a pod may write to it")
		return nil
	}
	of := subject{label: claimLabel(key), about: []journal.Ref{g.about}, driver: use.Driver, handle: use.Handle}
	err = m.stepOf(ctx, of, StepExpandNode, onward(claim.CallExpand), func(ctx context.Context) (string, error) {
		return size.String(), m.expandNode(ctx, g)
	})
	if err == nil {
		m.recordEventf(g.about, false, "FileSystemResizeSuccessful",
			"MountVolume.NodeExpandVolume succeeded for volume %q", use.SpecName)
		return nil
	}
	if isLocal(err) || ctx.Err() != nil {
		return err
	}
	return m.growthFailed(g, err)
}

// growth is one expansion on this machine.
type growth struct {
	key   string
	found bound
	use   *store.VolumeUse
	path  string
	size  resource.Quantity
	about journal.Ref
}

// publishedFor returns the path where a volume is published, for a pod or, if pod is
// empty, for any. It prefers a path that can be written to.
func publishedFor(use *store.VolumeUse, pod types.UID) (found string, at store.Target) {
	for _, path := range slices.Sorted(maps.Keys(use.Targets)) {
		target := use.Targets[path]
		if target.Phase != store.PhaseDone || pod != "" && target.PodUID != pod {
			continue
		}
		if found == "" || at.ReadOnly && !target.ReadOnly {
			found, at = path, target
		}
	}
	return found, at
}

// expandNode is one attempt.
func (m *Manager) expandNode(ctx context.Context, g growth) error {
	secrets, capability, able, err := m.expansionOf(ctx, g)
	if err != nil {
		return err
	}
	if !able { // the node has no part in it
		return m.grew(g)
	}
	if err := m.editClaim(g.found.claim, claim.BeginNodeResize); err != nil {
		return err
	}
	if err := m.hit("expand-node/intent"); err != nil {
		return err
	}
	err = m.onDriver(ctx, g.use.Driver, func(driver *plugins.Driver) error {
		request := &csi.NodeExpandVolumeRequest{
			VolumeId: g.use.Handle, VolumePath: g.path, VolumeCapability: capability, Secrets: secrets,
			CapacityRange: &csi.CapacityRange{RequiredBytes: g.size.Value()},
		}
		if g.use.Stage == store.PhaseDone {
			request.StagingTargetPath = g.use.StagingPath
		}
		_, err := driver.Client.NodeExpandVolume(ctx, request)
		return err
	})
	if err != nil {
		return err
	}
	if err := m.hit("expand-node/called"); err != nil {
		return err
	}
	return m.grew(g)
}

// grew records the new size of the filesystem, in claim and volume at once. A
// PersistentVolume that was deleted by force needs no record.
func (m *Manager) grew(g growth) error {
	return recording(m.update(func(tx *store.Tx) error {
		pvc, err := tx.Claims().Get(g.key)
		if err != nil {
			return err
		}
		if pvc == nil || pvc.UID != g.found.claim.UID {
			return fmt.Errorf("%s vanished while its filesystem grew", claim.Describe(g.found.claim))
		}
		claim.FinishResize(pvc, g.size)
		volume, err := tx.Volumes().Get(g.found.volume.Name)
		if err == nil && volume != nil && volume.UID == g.found.volume.UID {
			markExpanded(volume, g.size)
			err = tx.Volumes().Put(volume.Name, volume)
		}
		return errors.Join(err, tx.Claims().Put(g.key, pvc))
	}))
}

func (m *Manager) expansionOf(ctx context.Context, g growth) (map[string]string, *csi.VolumeCapability, bool, error) {
	driver, err := m.options.Drivers.Driver(g.use.Driver)
	if err != nil {
		return nil, nil, false, err
	}
	can, err := driver.Client.NodeCapabilities(ctx)
	if err != nil || !can.Expand {
		return nil, nil, false, err
	}
	capability, err := m.nodeCapability(ctx, volumeToMount{use: g.use, selinux: g.use.Targets[g.path].SELinuxLabel})
	if err != nil {
		return nil, nil, false, err
	}
	secrets, err := m.nodeSecret(claimLabel(g.key), g.found.volume.Spec.CSI.NodeExpandSecretRef)
	return secrets, capability, true, err
}

// growthFailed records a failed attempt. It returns the error only if another attempt may
// succeed.
func (m *Manager) growthFailed(g growth, failure error) error {
	then, text := lifecycle.AfterFailedNodeExpand(failure), failure.Error()
	if then.Parked {
		text += "; it is tried again when the volume is used again"
		g.use.ExpandRefused = g.size.String()
		if err := m.saveUse(g.use); err != nil {
			return err
		}
	}
	m.recordEventf(g.about, true, "FileSystemResizeFailed", "%s", text)
	err := m.editClaim(g.found.claim, func(pvc *corev1.PersistentVolumeClaim) {
		claim.FailNodeResize(pvc, then.Outcome, text, time.Now())
	})
	if !then.Repeat {
		return err
	}
	return errors.Join(failure, err)
}
