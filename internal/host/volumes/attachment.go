package volumes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/csi/client"
	"github.com/holdfast-csi/holdfast/internal/host/plugins"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// nodeIDAnnotation on a VolumeAttachment is the driver's ID of the node
// (external-attacher).
const nodeIDAnnotation = "csi.alpha.kubernetes.io/node-id"

// The limits of VolumeAttachment.status (k8s.io/kubernetes
// pkg/apis/storage/validation).
const (
	longestAttachError      = 1024
	largestAttachmentFields = 256 << 10
)

// reserve counts the volume against the driver's limit before the first call for it. It
// records the volume in the same transaction, so that two pods cannot both get the last
// slot. Inline volumes do not count (CSINode, allocatable).
func (m *Manager) reserve(toMount volumeToMount, driver *plugins.Driver) error {
	if driver.Node.MaxVolumes <= 0 || toMount.use.Inline {
		return nil
	}
	toMount.use.BootID = m.options.BootID
	var full error
	err := m.update(func(tx *store.Tx) error {
		uses, err := tx.Uses().All()
		if err != nil {
			return err
		}
		if full = isFull(uses, toMount, driver.Node.MaxVolumes); full == nil {
			err = tx.Uses().Put(toMount.use.Name, toMount.use)
		}
		return err
	})
	if err != nil {
		return recording(err)
	}
	return full
}

func isFull(uses []*store.VolumeUse, toMount volumeToMount, limit int64) error {
	var count int64
	full := &Waiting{}
	var pods []string
	for _, use := range uses {
		if use.Driver != toMount.use.Driver || use.Inline {
			continue
		}
		if use.Name == toMount.use.Name {
			return nil // it is counted already
		}
		count++
		for _, target := range use.Targets {
			pods = append(pods, target.Pod)
		}
	}
	if count < limit {
		return nil
	}
	slices.Sort(pods)
	for _, pod := range slices.Compact(pods) {
		full.On = append(full.On, podRefOf(pod))
	}
	if len(full.On) == 0 { // no change of a pod will report the end: the caller retries
		return fmt.Errorf("%s: driver %s takes %d volumes on this machine, and %d are still being taken away",
			toMount.label, toMount.use.Driver, limit, count)
	}
	full.text = fmt.Sprintf(
		"%s: driver %s takes %d volumes on this machine, and %d are in use (pods %s): waiting for one of them to end",
		toMount.label, toMount.use.Driver, limit, count, strings.Join(slices.Compact(pods), ", "))
	return full
}

// attach calls the controller for drivers that attach. Inline volumes never
// reach one.
func (m *Manager) attach(ctx context.Context, toMount volumeToMount) error {
	use := toMount.use
	if use.Inline || use.Attach == store.PhaseDone {
		return nil
	}
	var needed bool
	err := ask(ctx, toMount.label, func(ctx context.Context) (err error) {
		needed, err = m.needsAttach(ctx, use)
		return err
	})
	if err != nil || !needed {
		return err
	}
	of := toMount.subject()
	err = m.stepOf(ctx, of, StepAttach, onward(claim.CallAttach), func(ctx context.Context) (string, error) {
		return "", m.callAttach(ctx, toMount)
	})
	if err == nil {
		m.recordEventf(toMount.podRef(), false, "SuccessfulAttachVolume",
			"AttachVolume.Attach succeeded for volume %q", use.SpecName)
	} else if !errors.Is(err, ErrWaiting) {
		m.recordEventf(toMount.podRef(), true, "FailedAttachVolume",
			"AttachVolume.Attach failed for volume %q: %v", use.SpecName, err)
	}
	return err
}

func (m *Manager) needsAttach(ctx context.Context, use *store.VolumeUse) (bool, error) {
	object, err := m.driverOf(use.Driver)
	if err != nil || !claim.NeedsAttach(object) {
		return false, err
	}
	driver, err := m.options.Drivers.Driver(use.Driver)
	if err != nil {
		return false, err
	}
	can, err := driver.Client.ControllerCapabilities(ctx)
	return can.Attach, err
}

// callAttach is one attempt. It writes the VolumeAttachment object and the record in one
// transaction, so that they never differ.
func (m *Manager) callAttach(ctx context.Context, toMount volumeToMount) error {
	use := toMount.use
	request, err := m.attachRequest(ctx, toMount)
	if err != nil {
		return err
	}
	use.Attach, use.AttachReadOnly, use.AttachSecret = store.PhaseDoing, request.GetReadonly(), toMount.secrets.attach
	use.Attachment = claim.AttachmentName(use.Handle, use.Driver, m.nodeName())
	if err := m.saveUse(use, m.putAttachment(use, func(*storagev1.VolumeAttachmentStatus) {})); err != nil {
		return err
	}
	if err := m.hit("attach/intent"); err != nil {
		return err
	}
	err = m.onDriver(ctx, use.Driver, func(driver *plugins.Driver) (err error) {
		use.PublishContext, err = driver.Client.ControllerPublishVolume(ctx, request)
		return err
	})
	note(&use.Trouble, claim.CallAttach, err)
	if err != nil {
		return errors.Join(err, m.saveUse(use, m.putAttachment(use, func(status *storagev1.VolumeAttachmentStatus) {
			status.AttachError = volumeError(status.AttachError, err)
		})))
	}
	if err := m.hit("attach/called"); err != nil {
		return err
	}
	use.Attach = store.PhaseDone
	return m.saveUse(use, m.putAttachment(use, func(status *storagev1.VolumeAttachmentStatus) {
		status.Attached, status.AttachError, status.AttachmentMetadata = true, nil, bounded(use.PublishContext)
	}))
}

func (m *Manager) attachRequest(
	ctx context.Context, toMount volumeToMount,
) (*csi.ControllerPublishVolumeRequest, error) {
	use := toMount.use
	driver, err := m.options.Drivers.Driver(use.Driver)
	if err != nil {
		return nil, err
	}
	can, err := driver.Client.ControllerCapabilities(ctx)
	if err != nil {
		return nil, err
	}
	desired := claim.Use{Block: use.Block, FSType: use.FSType, MountFlags: use.MountFlags}
	modes := use.Modes
	if len(modes) == 0 {
		modes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	mode, err := claim.FoldAccessModes(claim.Modes{SingleNodeMultiWriter: can.SingleNodeMultiWriter}, modes)
	if err != nil {
		return nil, err
	}
	secrets, err := m.nodeSecret(toMount.label, toMount.secrets.attach)
	if err != nil {
		return nil, err
	}
	return &csi.ControllerPublishVolumeRequest{
		VolumeId: use.Handle, NodeId: use.NodeID, VolumeCapability: desired.Capability(mode),
		VolumeContext: use.Attributes, Secrets: secrets,
		Readonly: can.PublishReadOnly && toMount.volume != nil && toMount.volume.Spec.CSI.ReadOnly,
	}, nil
}

// putAttachment writes the VolumeAttachment object of a use.
func (m *Manager) putAttachment(
	use *store.VolumeUse, change func(*storagev1.VolumeAttachmentStatus),
) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		object, err := tx.Attachments().Get(use.Attachment)
		if err != nil {
			return err
		}
		if object == nil {
			object = m.newAttachment(use)
		}
		change(&object.Status)
		return tx.Attachments().Put(object.Name, object)
	}
}

func (m *Manager) newAttachment(use *store.VolumeUse) *storagev1.VolumeAttachment {
	name := use.SpecName
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Name: use.Attachment, CreationTimestamp: metav1.Now(),
			Finalizers:  []string{claim.AttacherFinalizer(use.Driver)},
			Annotations: map[string]string{nodeIDAnnotation: use.NodeID},
		},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: use.Driver, NodeName: m.nodeName(),
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name},
		},
	}
}

// volumeError is an error as an object shows it. If the last error was equal, it keeps
// the time: a repeated failure must not change the object.
func volumeError(before *storagev1.VolumeError, err error) *storagev1.VolumeError {
	text := err.Error()
	if len(text) > longestAttachError {
		text = strings.ToValidUTF8(text[:longestAttachError-len("…")], "") + "…"
	}
	now := &storagev1.VolumeError{Time: metav1.NewTime(time.Now()), Message: text}
	if code, known := client.CodeNumber(err); known {
		now.ErrorCode = &code
	}
	if before != nil && before.Message == text {
		now.Time = before.Time
	}
	return now
}

// bounded returns nil for a publish context that is too large for the object. The record
// always has it.
func bounded(context map[string]string) map[string]string {
	size := 0
	for key, value := range context {
		size += len(key) + len(value)
	}
	if size > largestAttachmentFields {
		return nil
	}
	return context
}

// detach undoes attach. A driver without the capability, which it may have had before,
// is not called: the volume counts as detached.
func (m *Manager) detach(ctx context.Context, use *store.VolumeUse) error {
	if use.Attach == store.PhaseNone {
		return nil
	}
	return m.undo(ctx, use, StepDetach, "detach", func() { use.Attach = store.PhaseUndoing },
		func(ctx context.Context) error {
			err := m.giveUpAttached(use, m.callDetach(ctx, use))
			if err != nil && use.Attachment != "" {
				return errors.Join(err, m.saveUse(use, m.putAttachment(use, func(status *storagev1.VolumeAttachmentStatus) {
					status.DetachError = volumeError(status.DetachError, err)
				})))
			}
			return err
		}, func() { use.Attach = store.PhaseNone })
}

func (m *Manager) callDetach(ctx context.Context, use *store.VolumeUse) error {
	secrets, err := m.detachSecret(use)
	if err != nil {
		return err
	}
	return m.onDriver(ctx, use.Driver, func(driver *plugins.Driver) error {
		can, err := driver.Client.ControllerCapabilities(ctx)
		if err != nil {
			return err
		}
		if !can.Attach {
			return nil
		}
		if use.NodeID == "" { // the record was lost; without a node, CSI would detach it from all
			use.NodeID = driver.Node.ID
		}
		return driver.Client.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{
			VolumeId: use.Handle, NodeId: use.NodeID, Secrets: secrets,
		})
	})
}

// detachSecret reads the secret for ControllerUnpublishVolume. If it does not exist, the
// call waits for it, unless the PersistentVolume has
// claim.DeleteWithoutSecretAnnotation.
func (m *Manager) detachSecret(use *store.VolumeUse) (map[string]string, error) {
	secrets, missing := m.nodeSecret(use.Label, use.AttachSecret)
	if missing == nil || !errors.Is(missing, ErrWaiting) {
		return secrets, missing
	}
	pv, err := m.volumeOf(use.SpecName)
	switch {
	case err != nil:
		return nil, errors.Join(missing, err)
	case pv != nil && lifecycle.WithoutSecret(pv.Annotations):
		m.logger.Warn("a volume is detached without its secret", "volume", use.Handle, "error", missing)
		return nil, nil
	}
	return nil, fmt.Errorf("%w; create it again, or annotate PersistentVolume %q with %s=true to detach without it",
		missing, use.SpecName, claim.DeleteWithoutSecretAnnotation)
}

// dropAttachment removes the object with the record of the detached volume.
func dropAttachment(use *store.VolumeUse) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		if use.Attachment == "" || use.Attach != store.PhaseNone {
			return nil
		}
		return tx.Attachments().Delete(use.Attachment)
	}
}
