package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// senders limits the concurrent requests of a storm.
	senders = 50
	// stormTimeout is for one phase of a storm.
	stormTimeout = 45 * time.Minute
)

// phase is one wave of a storm.
type phase struct {
	items int
	took  time.Duration // from the first request to the last item's end
	audited
	cpu time.Duration // of the controllers
}

func (p phase) rate() float64 { return float64(p.items) / p.took.Seconds() }

// wave makes n requests at once and waits until n objects have the desired state.
func (b *bench) wave(ctx context.Context, m *system, n int, objects source, there condition, request func(ctx context.Context, i int) error) (p phase, err error) {
	ctx, cancel := context.WithTimeout(ctx, stormTimeout)
	defer cancel()
	mark, err := auditMark(b.dir)
	if err != nil {
		return phase{}, err
	}
	before, err := m.usage()
	if err != nil {
		return phase{}, err
	}
	arrived, err := follow(ctx, objects, there)
	if err != nil {
		return phase{}, err
	}
	begun := time.Now()
	if err := m.during(ctx, func(ctx context.Context) error {
		group, working := errgroup.WithContext(ctx)
		group.Go(func() error { return send(working, n, request) })
		group.Go(func() error { return arrived.await(working, n) })
		return group.Wait()
	}); err != nil {
		return phase{}, fmt.Errorf("%s: %w", m.name, err)
	}
	p = phase{items: n, took: time.Since(begun)}
	if p.audited, err = auditSince(b.dir, accountName(m.name), mark); err != nil {
		return phase{}, err
	}
	after, err := m.usage()
	p.cpu = after.cpu - before.cpu
	return p, err
}

// send makes the requests, some at a time.
func send(ctx context.Context, n int, request func(context.Context, int) error) error {
	group, working := errgroup.WithContext(ctx)
	group.SetLimit(senders)
	for i := range n {
		group.Go(func() error { return request(working, i) })
	}
	return group.Wait()
}

func itemName(m *system, i int) string { return fmt.Sprintf("%s-%05d", m.name, i) }

// claims makes claims with immediate binding, until all are Bound.
func (b *bench) claims(ctx context.Context, m *system, n int) (phase, error) {
	claims := b.client.CoreV1().PersistentVolumeClaims(namespace)
	return b.wave(ctx, m, n,
		of(claims),
		func(o metav1.Object, gone bool) bool {
			pvc, ok := o.(*corev1.PersistentVolumeClaim)
			return ok && !gone && pvc.Status.Phase == corev1.ClaimBound && *pvc.Spec.StorageClassName == m.name
		},
		func(ctx context.Context, i int) error {
			_, err := claims.Create(ctx, &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: itemName(m, i)},
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: &m.name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}, metav1.CreateOptions{})
			return err
		})
}

// deleteClaims deletes them, until their PersistentVolumes are gone.
func (b *bench) deleteClaims(ctx context.Context, m *system, n int) (phase, error) {
	return b.wave(ctx, m, n,
		of(b.client.CoreV1().PersistentVolumes()),
		func(o metav1.Object, gone bool) bool {
			pv, ok := o.(*corev1.PersistentVolume)
			return ok && gone && pv.Spec.CSI != nil && pv.Spec.CSI.Driver == m.driver
		},
		func(ctx context.Context, i int) error {
			return b.client.CoreV1().PersistentVolumeClaims(namespace).Delete(ctx, itemName(m, i), metav1.DeleteOptions{})
		})
}

// attach creates VolumeAttachments, as Kubernetes does for scheduled pods, and waits
// until all are attached.
func (b *bench) attach(ctx context.Context, m *system, n int) (phase, error) {
	volumes, err := b.boundVolumes(ctx, m)
	if err != nil {
		return phase{}, err
	}
	if len(volumes) < n {
		return phase{}, fmt.Errorf("%d claims are bound, not %d", len(volumes), n)
	}
	attachments := b.client.StorageV1().VolumeAttachments()
	return b.wave(ctx, m, n,
		of(attachments),
		func(o metav1.Object, gone bool) bool {
			va, ok := o.(*storagev1.VolumeAttachment)
			return ok && !gone && va.Status.Attached && va.Spec.Attacher == m.driver
		},
		func(ctx context.Context, i int) error {
			_, err := attachments.Create(ctx, &storagev1.VolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Name: itemName(m, i)},
				Spec: storagev1.VolumeAttachmentSpec{
					Attacher: m.driver, NodeName: b.cluster.Nodes[i%len(b.cluster.Nodes)],
					Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volumes[i]},
				},
			}, metav1.CreateOptions{})
			return err
		})
}

func (b *bench) boundVolumes(ctx context.Context, m *system) ([]string, error) {
	all, err := b.client.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, pvc := range all.Items {
		if *pvc.Spec.StorageClassName == m.name && pvc.Spec.VolumeName != "" {
			names = append(names, pvc.Spec.VolumeName)
		}
	}
	return names, nil
}

// detach deletes the VolumeAttachments, until they are gone.
func (b *bench) detach(ctx context.Context, m *system, n int) (phase, error) {
	attachments := b.client.StorageV1().VolumeAttachments()
	return b.wave(ctx, m, n,
		of(attachments),
		func(o metav1.Object, gone bool) bool {
			va, ok := o.(*storagev1.VolumeAttachment)
			return ok && gone && va.Spec.Attacher == m.driver
		},
		func(ctx context.Context, i int) error {
			return attachments.Delete(ctx, itemName(m, i), metav1.DeleteOptions{})
		})
}

// storm is the measurements of one system with few objects.
type storm struct {
	idle                            used
	claims, attach, detach, deleted phase
}

func (b *bench) storm(ctx context.Context, m *system, n int) (r storm, err error) {
	if err := m.start(b.s); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, m.stop()) }()
	if r.idle, err = m.idle(ctx, b.s.idleTime); err != nil {
		return r, err
	}
	for _, step := range []struct {
		name string
		into *phase
		do   func(context.Context, *system, int) (phase, error)
	}{
		{"claims to Bound", &r.claims, b.claims},
		{"attachments", &r.attach, b.attach},
		{"detachments", &r.detach, b.detach},
		{"deletions", &r.deleted, b.deleteClaims},
	} {
		if *step.into, err = step.do(ctx, m, n); err != nil {
			return r, fmt.Errorf("%s: %w", step.name, err)
		}
		say("%s: %d %s at %s; CPU %s; %s", m.name, n, step.name, perSecond(step.into.rate()), seconds(step.into.cpu), step.into.writes)
	}
	return r, nil
}
