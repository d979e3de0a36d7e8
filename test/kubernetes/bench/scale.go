package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-csi/holdfast/test/kubernetes/cluster"
)

// scaleDriver is the driver whose volumes are on the simulated nodes.
const scaleDriver = "scale.simulated.holdfast.dev"

// scaleNodeKey is its topology key, which package csidriver defines.
const scaleNodeKey = "node"

// nodeLabel has the node of a claim or volume as its value.
const nodeLabel = "holdfast.dev/node"

// scaleReady limits the time until all nodes have filled their caches.
const scaleReady = 30 * time.Minute

func scaleNode(i int) string { return fmt.Sprintf("scale-%05d", i) }

// scale is a cluster of many nodes that exist as objects and as controllers only.
type scale struct {
	*bench
	meter      *meter
	kubeconfig string // through the meter
}

// design is one way to run the controllers of all nodes.
type design struct {
	name  string
	flags []string // of test/scale
}

// measureScale measures a cluster of many nodes: what a restart of all nodes and the life
// of a claim cost the API server, and the memory of one node.
func measureScale(ctx context.Context, s settings) (rows []row, err error) {
	designs := []design{{name: "Holdfast"}}
	if s.both {
		designs = append(designs, design{"each node watches everything", []string{"-node-objects-only=false"}})
	}
	var all []scaleResult
	for _, d := range designs {
		result, err := s.scaleOf(ctx, d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.name, err)
		}
		all = append(all, result)
	}
	return scaleRows(s, all), nil
}

// scaleOf measures one design on a new cluster.
func (s settings) scaleOf(ctx context.Context, d design) (result scaleResult, err error) {
	dir, err := os.MkdirTemp(s.scratch, "holdfast-scale-")
	if err != nil {
		return result, err
	}
	c, err := cluster.Up(ctx, cluster.Options{
		Dir: filepath.Join(dir, "cluster"), Binaries: s.binaries, Attached: true, NoNodes: true,
		Flags: map[string][]string{
			// The nodes have no kubelet; their objects stay as they are.
			"kube-controller-manager": {"--controllers=*,-node-lifecycle-controller,-node-ipam-controller"},
		},
	})
	if err != nil {
		return result, err
	}
	defer func() {
		down := c.Down()
		if err == nil && down == nil {
			down = os.RemoveAll(dir)
		} else {
			say("logs and state are left in %s", dir)
		}
		err = errors.Join(err, down)
	}()
	b := &bench{s: s, dir: dir, cluster: c}
	if err := b.connect(ctx); err != nil {
		return result, err
	}
	sc := &scale{bench: b}
	metering, stop := context.WithCancel(ctx)
	defer stop()
	if sc.meter, sc.kubeconfig, err = newMeter(metering, c.Kubeconfig); err != nil {
		return result, err
	}
	if err := sc.prepare(ctx); err != nil {
		return result, err
	}
	return sc.measure(ctx, d)
}

// prepare makes the nodes, the class and the volumes that exist already.
func (sc *scale) prepare(ctx context.Context) error {
	policy, mode := corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingWaitForFirstConsumer
	_, err := sc.client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "scale"}, Provisioner: scaleDriver, ReclaimPolicy: &policy, VolumeBindingMode: &mode,
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := send(ctx, sc.s.nodes, sc.addNode); err != nil {
		return err
	}
	say("%d nodes exist; making %d volumes", sc.s.nodes, sc.s.objects)
	bound, err := follow(ctx, of(sc.client.CoreV1().PersistentVolumeClaims(namespace)), isBound)
	if err != nil {
		return err
	}
	if err := send(ctx, sc.s.objects, sc.addVolume); err != nil {
		return err
	}
	return bound.await(ctx, sc.s.objects)
}

func isBound(o metav1.Object, gone bool) bool {
	pvc, ok := o.(*corev1.PersistentVolumeClaim)
	return ok && !gone && pvc.Status.Phase == corev1.ClaimBound
}

// addNode makes the objects of a node on which the kubelet has registered the driver.
func (sc *scale) addNode(ctx context.Context, i int) error {
	name := scaleNode(i)
	node, err := sc.client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, scaleNodeKey: name}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = sc.client.StorageV1().CSINodes().Create(ctx, &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID,
		}}},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: scaleDriver, NodeID: name, TopologyKeys: []string{scaleNodeKey}}}},
	}, metav1.CreateOptions{})
	return err
}

// addVolume makes a volume of an earlier day, with its claim, on one of the nodes.
func (sc *scale) addVolume(ctx context.Context, i int) error {
	node := scaleNode(i % sc.s.nodes)
	volume, claim := fmt.Sprintf("earlier-%06d", i), fmt.Sprintf("earlier-%06d", i)
	class, size := "scale", corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	_, err := sc.client.CoreV1().PersistentVolumeClaims(namespace).Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: claim, Annotations: map[string]string{
			"volume.kubernetes.io/selected-node":       node,
			"volume.kubernetes.io/storage-provisioner": scaleDriver,
		}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: modes, VolumeName: volume,
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = sc.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": scaleDriver}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: modes, Capacity: size, StorageClassName: class, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: namespace, Name: claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: scaleDriver, VolumeHandle: "id-" + volume + "@" + node,
			}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: scaleNodeKey, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	return err
}

// scaleResult is what one design took.
type scaleResult struct {
	design                          design
	labels, restart, bound, deleted scalePhase
	// node is one node's controllers with their simulated driver, idle; leader is those of
	// a node that also coordinates all others.
	node, leader used
}

// scalePhase is one step of a measurement.
type scalePhase struct {
	took time.Duration
	sent int64 // bytes, by the API server to the processes
	api  served
	cpu  time.Duration // of the processes
}

// measure runs the processes of all nodes and gives them work.
func (sc *scale) measure(ctx context.Context, d design) (result scaleResult, err error) {
	result.design = d
	var processes []*process
	defer func() {
		for _, p := range processes {
			err = errors.Join(err, p.stop())
		}
	}()
	step := func(do func() error) (phase scalePhase, err error) {
		before, err := sc.served(ctx)
		if err != nil {
			return phase, err
		}
		sent, usedBefore, begun := sc.meter.sent.Load(), usageOf(processes), time.Now()
		if err := do(); err != nil {
			return phase, err
		}
		phase.took = time.Since(begun)
		after, err := sc.served(ctx)
		phase.sent, phase.cpu = sc.meter.sent.Load()-sent, usageOf(processes).cpu-usedBefore.cpu
		phase.api = after.since(before)
		return phase, err
	}
	leader, err := sc.startLeader(ctx, d)
	if err != nil {
		return result, err
	}
	processes = append(processes, leader)
	if len(d.flags) == 0 {
		if result.labels, err = step(func() error { return sc.awaitLabels(ctx) }); err != nil {
			return result, err
		}
		say("%s: the objects of %d volumes are labelled after %v", d.name, sc.s.objects, result.labels.took.Round(time.Second))
	}
	if result.restart, err = step(func() error {
		nodes, err := sc.startNodes(ctx, d)
		processes = append(processes, nodes...)
		return err
	}); err != nil {
		return result, err
	}
	say("%s: %d nodes are ready after %v; the API server sent %s in %.0f lists and took %s of CPU", d.name, sc.s.nodes,
		result.restart.took.Round(time.Second), megabytes(result.restart.sent), result.restart.api.lists, seconds(result.restart.api.cpu))
	if result.node, err = sc.oneNode(ctx, d); err != nil {
		return result, err
	}
	if result.leader, err = usage(leader.cmd.Process.Pid, os.ReadFile); err != nil {
		return result, err
	}
	say("%s: one node takes %s, the coordinating one %s", d.name, result.node.memory(), result.leader.memory())
	for _, one := range []struct {
		name string
		into *scalePhase
		do   func(context.Context) error
	}{
		{"bound", &result.bound, sc.scaleClaims},
		{"deleted", &result.deleted, sc.deleteScaleClaims},
	} {
		watched := &system{processes: processes}
		*one.into, err = step(func() error { return watched.during(ctx, one.do) })
		if err != nil {
			return result, fmt.Errorf("%s: %w", one.name, err)
		}
		p := *one.into
		say("%s: %d claims %s in %v; for each, the API server sent %s in %.1f events and took %s of CPU", d.name, sc.s.claims, one.name,
			p.took.Round(time.Second), kilobytesOf(p.sent/int64(sc.s.claims)), p.api.events/float64(sc.s.claims),
			milliseconds(p.api.cpu/time.Duration(sc.s.claims)))
	}
	return result, nil
}

func usageOf(processes []*process) (all used) {
	for _, p := range processes {
		if u, err := usage(p.cmd.Process.Pid, os.ReadFile); err == nil {
			all = all.add(u)
		}
	}
	return all
}

// startNodes starts the processes and returns when the caches of all nodes are filled.
func (sc *scale) startNodes(ctx context.Context, d design) (processes []*process, err error) {
	each := (sc.s.nodes + sc.s.processes - 1) / sc.s.processes
	for first := 0; first < sc.s.nodes; first += each {
		p, err := sc.startScale(d, fmt.Sprintf("nodes-%05d", first), first, min(each, sc.s.nodes-first))
		if err != nil {
			return processes, err
		}
		processes = append(processes, p)
	}
	return processes, sc.awaitReady(ctx, processes)
}

func (sc *scale) startScale(d design, name string, first, nodes int, more ...string) (*process, error) {
	return startProcess(sc.dir, name, sc.s.scale, slices.Concat(d.flags, more, []string{
		"-kubeconfig=" + sc.kubeconfig, "-driver=" + scaleDriver, "-namespace=" + namespace,
		"-first=" + strconv.Itoa(first), "-nodes=" + strconv.Itoa(nodes), "-latency=" + sc.s.latency.String(),
	})...)
}

// awaitReady returns when each process has reported that its caches are filled.
func (sc *scale) awaitReady(ctx context.Context, processes []*process) error {
	ctx, cancel := context.WithTimeout(ctx, scaleReady)
	defer cancel()
	for _, p := range processes {
		for {
			log, err := os.ReadFile(p.log.Name())
			if err != nil {
				return err
			}
			if strings.Contains(string(log), "ready: ") {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s does not report that it is ready; see %s: %w", p.name, p.log.Name(), context.Cause(ctx))
			case <-p.ended:
				return fmt.Errorf("%s ended, see %s", p.name, p.log.Name())
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// startLeader starts the process of one node alone, so that it is elected.
func (sc *scale) startLeader(ctx context.Context, d design) (*process, error) {
	if err := sc.addNode(ctx, sc.s.nodes+1); err != nil {
		return nil, err
	}
	p, err := sc.startScale(d, "leader", sc.s.nodes+1, 1)
	if err != nil {
		return nil, err
	}
	if err := sc.awaitReady(ctx, []*process{p}); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// awaitLabels returns when all claims and PersistentVolumes have the label of their node.
func (sc *scale) awaitLabels(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stormTimeout)
	defer cancel()
	labelled := func(o metav1.Object, gone bool) bool { return !gone && o.GetLabels()[nodeLabel] != "" }
	claims, err := follow(ctx, of(sc.client.CoreV1().PersistentVolumeClaims(namespace)), labelled)
	if err != nil {
		return err
	}
	volumes, err := follow(ctx, of(sc.client.CoreV1().PersistentVolumes()), labelled)
	if err != nil {
		return err
	}
	if err := claims.await(ctx, sc.s.objects); err != nil {
		return err
	}
	return volumes.await(ctx, sc.s.objects)
}

// oneNode returns the memory of a process that serves one node, when it is idle.
func (sc *scale) oneNode(ctx context.Context, d design) (u used, err error) {
	if err := sc.addNode(ctx, sc.s.nodes); err != nil {
		return u, err
	}
	p, err := sc.startScale(d, "one-node", sc.s.nodes, 1, "-elect=false")
	if err != nil {
		return u, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := sc.awaitReady(ctx, []*process{p}); err != nil {
		return u, err
	}
	select {
	case <-ctx.Done():
		return u, ctx.Err()
	case <-time.After(sc.s.idleTime):
		return usage(p.cmd.Process.Pid, os.ReadFile)
	}
}

func scaleClaim(i int) string { return fmt.Sprintf("scale-%06d", i) }

// scaleClaims makes claims and selects their nodes, as the scheduler does for the first
// pod of each, until all are Bound.
func (sc *scale) scaleClaims(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stormTimeout)
	defer cancel()
	claims := sc.client.CoreV1().PersistentVolumeClaims(namespace)
	class := "scale"
	arrived, err := follow(ctx, of(claims), func(o metav1.Object, gone bool) bool {
		return isBound(o, gone) && strings.HasPrefix(o.GetName(), "scale-")
	})
	if err != nil {
		return err
	}
	group, working := errgroup.WithContext(ctx)
	group.Go(func() error {
		return send(working, sc.s.claims, func(ctx context.Context, i int) error {
			_, err := claims.Create(ctx, &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: scaleClaim(i)},
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":%q}}}`, scaleNode(i%sc.s.nodes))
			_, err = claims.Patch(ctx, scaleClaim(i), types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		})
	})
	group.Go(func() error { return arrived.await(working, sc.s.claims) })
	return group.Wait()
}

// deleteScaleClaims deletes them, until their PersistentVolumes are gone.
func (sc *scale) deleteScaleClaims(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stormTimeout)
	defer cancel()
	gone, err := follow(ctx, of(sc.client.CoreV1().PersistentVolumes()), func(_ metav1.Object, gone bool) bool { return gone })
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

func kilobytesOf(bytes int64) string { return fmt.Sprintf("%.1f KB", float64(bytes)/1e3) }
func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1e3)
}
func perClaim(n float64, claims int) string { return fmt.Sprintf("%.1f", n/float64(claims)) }

// leaderAim is the aim for the process that coordinates the nodes, in MiB: 190 at 10,000
// objects of each kind and 1,229 at 100,000.
func leaderAim(objects int) int {
	return 190 + (1229-190)*max(0, objects-10_000)/90_000
}

// scaleRows are the table: the first result is Holdfast's.
func scaleRows(s settings, all []scaleResult) (rows []row) {
	what := fmt.Sprintf("%d nodes, %d volumes", s.nodes, s.objects)
	add := func(work, aim string, text func(scaleResult) string, number func(scaleResult) float64) {
		r := row{work: work, holdfast: text(all[0]), aim: aim}
		if len(all) > 1 {
			r.alternative, r.measured, r.ratio = all[1].design.name, text(all[1]), ratio(number(all[0]), number(all[1]))
		}
		rows = append(rows, r)
	}
	add("memory of one node's process, "+what, "≤ 45 MiB",
		func(r scaleResult) string { return r.node.memory() }, func(r scaleResult) float64 { return float64(r.node.rss) })
	add("— of the process that coordinates the nodes", fmt.Sprintf("≤ %d MiB", leaderAim(s.objects)),
		func(r scaleResult) string { return r.leader.memory() }, func(r scaleResult) float64 { return float64(r.leader.rss) })
	add("labels on the objects of earlier volumes, once", "",
		func(r scaleResult) string { return seconds(r.labels.took) }, func(r scaleResult) float64 { return r.labels.took.Seconds() })
	add("restart of all nodes, until their caches are filled", "",
		func(r scaleResult) string { return seconds(r.restart.took) }, func(r scaleResult) float64 { return r.restart.took.Seconds() })
	add("— sent by the API server", "each object once or twice",
		func(r scaleResult) string { return megabytes(r.restart.sent) }, func(r scaleResult) float64 { return float64(r.restart.sent) })
	add("— CPU of the API server", "",
		func(r scaleResult) string { return seconds(r.restart.api.cpu) }, func(r scaleResult) float64 { return r.restart.api.cpu.Seconds() })
	for _, phase := range []struct {
		work string
		of   func(scaleResult) scalePhase
	}{
		{fmt.Sprintf("%d claims to Bound", s.claims), func(r scaleResult) scalePhase { return r.bound }},
		{fmt.Sprintf("%d claims deleted, to the end of their volumes", s.claims), func(r scaleResult) scalePhase { return r.deleted }},
	} {
		add(phase.work, "",
			func(r scaleResult) string { return seconds(phase.of(r).took) }, func(r scaleResult) float64 { return phase.of(r).took.Seconds() })
		add("— events sent for each, to all watchers", "independent of the number of nodes",
			func(r scaleResult) string { return perClaim(phase.of(r).api.events, s.claims) },
			func(r scaleResult) float64 { return phase.of(r).api.events })
		add("— bytes sent for each to the nodes", "",
			func(r scaleResult) string { return kilobytesOf(phase.of(r).sent / int64(s.claims)) },
			func(r scaleResult) float64 { return float64(phase.of(r).sent) })
		add("— CPU of the API server for each", "",
			func(r scaleResult) string { return milliseconds(phase.of(r).api.cpu / time.Duration(s.claims)) },
			func(r scaleResult) float64 { return phase.of(r).api.cpu.Seconds() })
		add("— CPU of the nodes for each", "",
			func(r scaleResult) string { return milliseconds(phase.of(r).cpu / time.Duration(s.claims)) },
			func(r scaleResult) float64 { return phase.of(r).cpu.Seconds() })
	}
	return rows
}
