package volumes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/lifecycle"
)

// createSnapshot marks a content and calls CreateSnapshot for it. A marked content is not
// deleted before the answer is final, since the snapshot could appear afterwards.
func (m *Manager) createSnapshot(ctx context.Context, content *snapshotv1.VolumeSnapshotContent) error {
	driver, request, err := m.snapshotRequest(ctx, content)
	if err != nil {
		return err
	}
	_, again := content.Annotations[claim.VolumeSnapshotKeys().BeingCreated]
	parameters, err := json.Marshal(request.GetParameters())
	if err != nil {
		return fmt.Errorf("%s: record the parameters: %w", describeContent(content.Name), err)
	}
	if err := m.editContent(content, func(current *snapshotv1.VolumeSnapshotContent) {
		if current.Annotations == nil {
			current.Annotations = map[string]string{}
		}
		current.Annotations[claim.VolumeSnapshotKeys().BeingCreated] = "yes"
		current.Annotations[parametersAnnotation] = string(parameters)
	}); err != nil {
		return err
	}
	if err := m.hit("create-snapshot/intent"); err != nil {
		return err
	}
	of := contentSubject(content)
	of.request = request.GetName()
	return m.stepOf(ctx, of, StepSnapshot, onward(claim.CallSnapshot), func(ctx context.Context) (string, error) {
		repeated := again
		again = true // if the step is repeated, this call may have had its effect
		snapshot, err := driver.Client.CreateSnapshot(ctx, request)
		if err != nil {
			return "", m.createFailed(content, repeated, err)
		}
		if err := m.acceptSnapshot(content, snapshot); err != nil {
			return "", err // the snapshot may exist under an unknown ID
		}
		if err := m.hit("create-snapshot/called"); err != nil {
			return "", err
		}
		return snapshot.GetSnapshotId(), m.taken(content, snapshot)
	})
}

// createFailed removes the mark if no snapshot can exist.
func (m *Manager) createFailed(content *snapshotv1.VolumeSnapshotContent, repeated bool, failure error) error {
	outcome := lifecycle.AfterFailedCreate(lifecycle.Creation{
		Call: claim.CallSnapshot, Copied: true, Repeated: repeated, Desired: content.DeletionTimestamp == nil,
	}, failure)
	switch {
	case lifecycle.MayRun(claim.CallSnapshot, failure):
		return fmt.Errorf("%w (the snapshot may still be taken: the same call is repeated)", failure)
	case outcome.KeepsIntent():
		return &uncertain{fmt.Errorf(
			"the snapshot may have been taken by an earlier call, and the driver's answer does not say: %w", failure)}
	}
	return errors.Join(failure, m.editContent(content, func(current *snapshotv1.VolumeSnapshotContent) {
		delete(current.Annotations, claim.VolumeSnapshotKeys().BeingCreated)
		delete(current.Annotations, parametersAnnotation) // the class may be right the next time
	}))
}

// acceptSnapshot returns an error for an answer that cannot be right.
func (m *Manager) acceptSnapshot(content *snapshotv1.VolumeSnapshotContent, snapshot *csi.Snapshot) error {
	if err := lifecycle.CheckSnapshotAnswer(content, snapshot); err != nil || lifecycle.NamedSnapshot(content) != "" {
		return err
	}
	id := snapshot.GetSnapshotId()
	names, err := m.index.find(hasSnapshot(content.Spec.Driver, id))
	if err != nil {
		return err
	}
	named := func(name string) lifecycle.SnapshotContent {
		return lifecycle.SnapshotContent{Name: name, Driver: content.Spec.Driver, Handle: id}
	}
	others := func(yield func(lifecycle.SnapshotContent) bool) {
		for _, name := range names {
			if !yield(named(name)) {
				return
			}
		}
	}
	return lifecycle.CheckNewSnapshot(others, named(content.Name))
}

// taken records a snapshot that exists, and removes the mark, in one write. It keeps
// the time and the size of the first answer.
func (m *Manager) taken(content *snapshotv1.VolumeSnapshotContent, snapshot *csi.Snapshot) error {
	id, ready := snapshot.GetSnapshotId(), snapshot.GetReadyToUse()
	when := lifecycle.SnapshotTime(snapshot.GetCreationTime(), time.Now()).UnixNano()
	err := m.editContent(content, func(current *snapshotv1.VolumeSnapshotContent) {
		status := contentStatus(current)
		status.SnapshotHandle, status.ReadyToUse, status.Error = &id, &ready, nil
		if status.CreationTime == nil {
			status.CreationTime = &when
		}
		if size := snapshot.GetSizeBytes(); size > 0 && status.RestoreSize == nil {
			status.RestoreSize = &size
		}
		delete(current.Annotations, claim.VolumeSnapshotKeys().BeingCreated)
		if ready {
			delete(current.Annotations, parametersAnnotation)
		}
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	return m.hit("create-snapshot/recorded")
}
