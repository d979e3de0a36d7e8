package volumes

import (
	"context"
	"errors"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/holdfast-csi/holdfast/internal/claim"
	"github.com/holdfast-csi/holdfast/internal/progress"
)

// The pauses between requests for a snapshot that is not ready yet.
const (
	firstPoll   = time.Second
	longestPoll = time.Minute
)

// poll is the state of the requests for a snapshot that is not ready yet.
type poll struct {
	next   time.Time
	pause  time.Duration
	upload *upload // nil until the step is reported
}

// upload is the step of a snapshot that is not ready yet. One worker at a time uses it.
type upload struct {
	began time.Time
	meter progress.Meter
}

// poll asks the driver with growing pauses whether a snapshot is ready: no driver
// reports that by itself.
func (m *Manager) poll(
	ctx context.Context, content *snapshotv1.VolumeSnapshotContent, next contentStep,
) (time.Duration, error) {
	known := m.polls.get(content.Name)
	if next == contentPoll && known.pause == 0 { // it was just created
		known = poll{time.Now().Add(firstPoll), firstPoll, beginUpload(content)}
		m.polls.set(content.Name, known)
		m.reportUpload(content, known.upload, Started, nil, nil)
	}
	if rest := time.Until(known.next); rest > 0 {
		return rest, nil
	}
	known.pause = min(max(2*known.pause, firstPoll), longestPoll)
	known.next = time.Now().Add(known.pause)
	m.polls.set(content.Name, known)
	find := m.findSnapshot
	if next == contentPoll {
		find = m.repeatCreate
	}
	snapshot, err := find(ctx, content)
	if err == nil {
		err = m.acceptSnapshot(content, snapshot)
	}
	if err == nil {
		err = m.taken(content, snapshot)
	}
	if err := m.shown(content, showing(next), err); err != nil {
		return 0, err
	}
	if snapshot.GetReadyToUse() {
		m.endUpload(content, nil)
		return 0, nil
	}
	m.followUpload(ctx, content, known.upload)
	return known.pause, nil
}

// beginUpload returns the step of a snapshot that was taken. After a restart of the host
// it began when the snapshot was taken.
func beginUpload(content *snapshotv1.VolumeSnapshotContent) *upload {
	now := time.Now()
	began := now
	if status := content.Status; status != nil && status.CreationTime != nil {
		if taken := time.Unix(0, *status.CreationTime); taken.Before(now) {
			began = taken
		}
	}
	return &upload{began: began}
}

// followUpload reports how far the driver was at the last request.
func (m *Manager) followUpload(ctx context.Context, content *snapshotv1.VolumeSnapshotContent, step *upload) {
	if step == nil {
		return
	}
	running, err := m.operations(ctx, content.Spec.Driver)
	if err != nil {
		return // a driver without such a list, or one that is away: the last report stays
	}
	name, err := claim.Naming{}.SnapshotName(content.Spec.VolumeSnapshotRef.UID)
	if err != nil {
		return
	}
	for _, one := range running {
		if one.Object == name {
			state := step.meter.Observe(time.Now(), one)
			m.reportUpload(content, step, Started, nil, &state)
		}
	}
}

// errSnapshotDeleted ends the upload of a snapshot.
var errSnapshotDeleted = errors.New("the snapshot was deleted before it was ready")

// endUpload ends the requests for a snapshot and the step, if it was reported.
func (m *Manager) endUpload(content *snapshotv1.VolumeSnapshotContent, cause error) {
	known := m.polls.get(content.Name)
	m.polls.drop(content.Name)
	switch {
	case known.upload == nil:
	case cause != nil:
		m.reportUpload(content, known.upload, Failed, cause, nil)
	default:
		m.reportUpload(content, known.upload, Done, nil, nil)
	}
}

func (m *Manager) reportUpload(
	content *snapshotv1.VolumeSnapshotContent, step *upload, status Status, cause error, state *progress.State,
) {
	of := contentSubject(content)
	m.options.Observe(Event{
		Volume: of.label, Step: StepUpload, Status: status, Took: time.Since(step.began), Err: cause,
		About: of.about, Driver: of.driver, Handle: of.handle, Progress: state,
	})
}

// repeatCreate repeats the first call: CSI reports progress in its response.
func (m *Manager) repeatCreate(ctx context.Context, content *snapshotv1.VolumeSnapshotContent) (*csi.Snapshot, error) {
	driver, request, err := m.snapshotRequest(ctx, content)
	if err != nil {
		return nil, err
	}
	return driver.Client.CreateSnapshot(ctx, request)
}

// findSnapshot asks about a snapshot that an administrator names. A driver that can
// list no single snapshot is assumed to have it.
func (m *Manager) findSnapshot(ctx context.Context, content *snapshotv1.VolumeSnapshotContent) (*csi.Snapshot, error) {
	id := *content.Spec.Source.SnapshotHandle
	driver, err := m.options.Drivers.Driver(content.Spec.Driver)
	if err != nil {
		return nil, err
	}
	can, err := driver.Client.ControllerCapabilities(ctx)
	if err != nil {
		return nil, err
	}
	if !can.ListSnapshots && !can.GetSnapshot {
		return &csi.Snapshot{SnapshotId: id, ReadyToUse: true}, nil
	}
	class, err := m.classOfContent(content)
	if err != nil {
		return nil, err
	}
	reference, err := class.InspectSecret(namesOf(content).Tokens())
	if err != nil {
		return nil, err
	}
	secrets, err := m.secret(reference, "ListSnapshots")
	if err != nil {
		return nil, err
	}
	return driver.Client.FindSnapshot(ctx, can, id, secrets)
}
