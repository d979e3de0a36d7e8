package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// scaleTimeout is for one phase of the measurement.
const scaleTimeout = 15 * time.Minute

// scaleResult is what one design took.
type scaleResult struct {
	labels, restart, idle, bound, deleted scalePhase
	// node is one node's process, idle; leader is that of a simulated node that also
	// coordinates all others.
	node, leader used
	// alone is the memory of the API server before any node's process was started, and
	// serving after the restart of all.
	alone, serving int64
}

// scalePhase is one step of a measurement.
type scalePhase struct {
	took time.Duration
	sent int64 // bytes, by the API server to the processes
	api  served
	cpu  time.Duration // of the processes
}

// step measures what the processes and the API server do during a function and, if
// untilQuiet is set, until the API server has sent all events. The time is that of the
// function alone.
func (sc *scale) step(
	ctx context.Context, processes *[]*process, untilQuiet bool, do func(context.Context) error,
) (phase scalePhase, err error) {
	ctx, cancel := context.WithTimeout(ctx, scaleTimeout)
	defer cancel()
	before, err := sc.served(ctx)
	if err != nil {
		return phase, err
	}
	sent, usedBefore, begun := sc.meter.sent.Load(), usageOf(*processes), time.Now()
	if err := do(ctx); err != nil {
		return phase, err
	}
	phase.took = time.Since(begun)
	if untilQuiet {
		if err := sc.awaitQuiet(ctx); err != nil {
			return phase, err
		}
	}
	after, err := sc.served(ctx)
	phase.sent, phase.cpu, phase.api = sc.meter.sent.Load()-sent, usageOf(*processes).cpu-usedBefore.cpu, after.since(before)
	return phase, err
}

// measure runs the processes of all nodes and gives them work.
func (sc *scale) measure(ctx context.Context) (result scaleResult, err error) {
	var all []*process
	defer func() {
		if sc.drivers != nil {
			all = append(all, sc.drivers)
		}
		for _, p := range all {
			p.kill() // the cluster ends, too
		}
	}()
	if err := sc.awaitQuiet(ctx); err != nil {
		return result, err
	}
	before, err := sc.served(ctx)
	if err != nil {
		return result, err
	}
	result.alone = before.rss
	if sc.design.coordinated() && sc.s.unlabelled > 0 {
		if result.labels, err = sc.labels(ctx); err != nil {
			return result, fmt.Errorf("labels: %w", err)
		}
	}
	var leader *process
	if result.restart, err = sc.step(ctx, &all, true, func(ctx context.Context) (err error) {
		leader, all, err = sc.startAll(ctx)
		return err
	}); err != nil {
		return result, err
	}
	say("%s: ready after %v; the API server sent %s, claims and volumes %.0f times, and took %s of CPU", sc.design,
		result.restart.took.Round(time.Second), megabytes(result.restart.sent), result.restart.api.volumes, seconds(result.restart.api.cpu))
	if err := sc.memory(ctx, leader, all, &result); err != nil {
		return result, err
	}
	return result, sc.lives(ctx, all, &result)
}

// labels measures the elected process as it labels the volumes that lack their node.
func (sc *scale) labels(ctx context.Context) (phase scalePhase, err error) {
	var all []*process
	phase, err = sc.step(ctx, &all, false, func(ctx context.Context) error {
		gone := func(_ metav1.Object, gone bool) bool { return gone }
		selector := ageLabel + "=" + earlier + ",!" + nodeLabel
		claims, err := follow(ctx, selected(of(sc.client.CoreV1().PersistentVolumeClaims(namespace)), selector), gone)
		if err != nil {
			return err
		}
		volumes, err := follow(ctx, selected(of(sc.client.CoreV1().PersistentVolumes()), selector), gone)
		if err != nil {
			return err
		}
		leader, err := sc.startLeader(ctx, "labels")
		if err != nil {
			return err
		}
		all = append(all, leader)
		return errors.Join(claims.await(ctx, sc.s.unlabelled), volumes.await(ctx, sc.s.unlabelled))
	})
	for _, p := range all {
		err = errors.Join(err, p.stop())
	}
	say("%s: %d volumes and their claims are labelled after %v", sc.design, sc.s.unlabelled, phase.took.Round(time.Second))
	return phase, err
}

// memory reads the memory of one node, of the coordinating process and of the API server
// after a time without work.
func (sc *scale) memory(ctx context.Context, leader *process, all []*process, result *scaleResult) (err error) {
	one, stop, err := sc.oneNode(ctx, all)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if result.idle, err = sc.step(ctx, &all, false, func(ctx context.Context) error { return pause(ctx, sc.s.idleTime) }); err != nil {
		return err
	}
	if result.node, err = usage(one.cmd.Process.Pid, os.ReadFile); err != nil {
		return err
	}
	if leader != nil {
		if result.leader, err = usage(leader.cmd.Process.Pid, os.ReadFile); err != nil {
			return err
		}
	}
	now, err := sc.served(ctx)
	result.serving = now.rss
	say("%s: one node takes %s, the coordinating one %s, all processes %s, the API server %s", sc.design,
		result.node.memory(), result.leader.memory(), usageOf(all).memory(), mebibytes(result.serving))
	return err
}

// lives measures the life of claims.
func (sc *scale) lives(ctx context.Context, all []*process, result *scaleResult) error {
	for _, one := range []struct {
		name string
		into *scalePhase
		do   func(context.Context) error
	}{
		{"bound", &result.bound, sc.scaleClaims},
		{"deleted", &result.deleted, sc.deleteScaleClaims},
	} {
		profiled := sc.startProfiles(ctx, one.name)
		watched := &system{processes: all}
		p, err := sc.step(ctx, &all, false, func(ctx context.Context) error { return watched.during(ctx, one.do) })
		if err := errors.Join(err, profiled()); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		*one.into = p
		say("%s: %d claims %s in %v; for each, the API server sent %s in %.1f events and took %s of CPU", sc.design, sc.s.claims, one.name,
			p.took.Round(time.Second), kilobytesOf(p.sent/int64(sc.s.claims)), p.api.events/float64(sc.s.claims),
			milliseconds(p.api.cpu/time.Duration(sc.s.claims)))
	}
	return nil
}

func isBound(o metav1.Object, gone bool) bool {
	pvc, ok := o.(*corev1.PersistentVolumeClaim)
	return ok && !gone && pvc.Status.Phase == corev1.ClaimBound
}

func scaleClaim(i int) string { return fmt.Sprintf("scale-%06d", i) }

// scaleClaims makes claims and selects their nodes, as the scheduler does for the first
// pod of each, until all are Bound.
func (sc *scale) scaleClaims(ctx context.Context) error {
	claims := sc.client.CoreV1().PersistentVolumeClaims(namespace)
	class := "scale"
	arrived, err := follow(ctx, selected(of(claims), ageLabel+"="+recent), isBound)
	if err != nil {
		return err
	}
	group, working := errgroup.WithContext(ctx)
	group.Go(func() error {
		return send(working, sc.s.claims, func(ctx context.Context, i int) error {
			_, err := claims.Create(ctx, &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: scaleClaim(i), Labels: map[string]string{ageLabel: recent}},
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			node := scaleNode(i % sc.design.nodes)
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":%q}}}`, node)
			_, err = claims.Patch(ctx, scaleClaim(i), types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		})
	})
	group.Go(func() error { return arrived.await(working, sc.s.claims) })
	return group.Wait()
}

// deleteScaleClaims deletes them, until their PersistentVolumes are gone.
func (sc *scale) deleteScaleClaims(ctx context.Context) error {
	volumes := selected(of(sc.client.CoreV1().PersistentVolumes()), ageLabel+"!="+earlier)
	gone, err := follow(ctx, volumes, func(_ metav1.Object, gone bool) bool { return gone })
	if err != nil {
		return err
	}
	group, working := errgroup.WithContext(ctx)
	group.Go(func() error {
		return send(working, sc.s.claims, func(ctx context.Context, i int) error {
			return sc.client.CoreV1().PersistentVolumeClaims(namespace).Delete(ctx, scaleClaim(i), metav1.DeleteOptions{})
		})
	})
	group.Go(func() error { return gone.await(working, sc.s.claims) })
	return group.Wait()
}
