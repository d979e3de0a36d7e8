package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// measureObjects measures memory with many objects: after the objects were created,
// after a restart, of the alternative with the same objects, and of a node's container.
func measureObjects(ctx context.Context, s settings) ([]row, error) {
	return on(ctx, s, func(ctx context.Context, b *bench) (rows []row, err error) {
		ours, other, err := b.systems(ctx)
		if err != nil {
			return nil, err
		}
		if err := ours.start(s); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, ours.stop()) }()
		if rows, err = b.fill(ctx, ours); err != nil {
			return nil, err
		}
		after, err := ours.idle(ctx, s.idleTime)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(ours.stopControllers(), ours.startControllers()); err != nil {
			return nil, err
		}
		again, err := ours.idle(ctx, s.idleTime)
		if err != nil {
			return nil, err
		}
		what := fmt.Sprintf("%d each of PVC, PV, VolumeAttachment, snapshot, content", s.objects)
		restarted := row{
			work: "memory of all controllers, " + what + ", after a restart", holdfast: again.memory(),
			alternative: "four sidecars of upstream*", measured: "799 MiB", aim: "≤ 190 MiB",
		}
		if other != nil {
			theirs, err := b.idleAmong(ctx, other)
			if err != nil {
				return nil, err
			}
			restarted.against(s, theirs.memory(), float64(again.rss), float64(theirs.rss))
		}
		rows = append(rows, restarted, row{work: "— after the objects were created", holdfast: after.memory(), aim: "≤ 190 MiB"})
		return b.nodeAmong(ctx, rows, what)
	})
}

// idleAmong measures an idle system with the objects of another.
func (b *bench) idleAmong(ctx context.Context, m *system) (u used, err error) {
	if err := m.start(b.s); err != nil {
		return used{}, err
	}
	defer func() { err = errors.Join(err, m.stop()) }()
	return m.idle(ctx, b.s.idleTime)
}

// nodeAmong adds the container of a node that has none of the objects.
func (b *bench) nodeAmong(ctx context.Context, rows []row, what string) ([]row, error) {
	if err := b.install(ctx); err != nil {
		return nil, err
	}
	u, err := b.idleContainer(ctx)
	if err != nil {
		return nil, err
	}
	return append(rows, row{work: "node container, backend local, " + what + " of others in the cluster", holdfast: u.memory()}), nil
}

// fill creates the objects, by the operations that are measured.
func (b *bench) fill(ctx context.Context, m *system) ([]row, error) {
	n := b.s.objects
	var rows []row
	for _, step := range []struct {
		work string
		do   func(context.Context, *system, int) (phase, error)
	}{
		{"claims to Bound, at once", b.claims},
		{"attachments to attached, at once", b.attach},
		{"snapshots to ready, at once", b.snapshot},
	} {
		p, err := step.do(ctx, m, n)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", step.work, err)
		}
		say("%s: %d %s in %v; CPU %s; %s", m.name, n, step.work, p.took.Round(time.Second), seconds(p.cpu), p.writes)
		rows = append(rows, row{work: fmt.Sprintf("%d %s", n, step.work), holdfast: perSecond(p.rate())})
	}
	return rows, nil
}

// snapshot takes a snapshot of each claim, until all are ready.
func (b *bench) snapshot(ctx context.Context, m *system, n int) (phase, error) {
	api := b.snapshots.SnapshotV1()
	_, err := api.VolumeSnapshotClasses().Create(ctx, &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: m.name}, Driver: m.driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}, metav1.CreateOptions{})
	if err != nil {
		return phase{}, err
	}
	objects := api.VolumeSnapshots(namespace)
	return b.wave(ctx, m, n,
		of(objects),
		func(o metav1.Object, gone bool) bool {
			snapshot, ok := o.(*snapshotv1.VolumeSnapshot)
			return ok && !gone && snapshot.Status != nil && snapshot.Status.ReadyToUse != nil && *snapshot.Status.ReadyToUse
		},
		func(ctx context.Context, i int) error {
			source := itemName(m, i)
			_, err := objects.Create(ctx, &snapshotv1.VolumeSnapshot{
				ObjectMeta: metav1.ObjectMeta{Name: source},
				Spec: snapshotv1.VolumeSnapshotSpec{
					VolumeSnapshotClassName: &m.name, Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &source},
				},
			}, metav1.CreateOptions{})
			return err
		})
}
