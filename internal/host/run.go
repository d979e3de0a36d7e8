package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-csi/holdfast/internal/host/manifest"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

// Output is where a workload's output goes, and where its signals come from.
type Output struct {
	Stdout, Stderr io.Writer
	// Signals are passed on to the workload while it runs.
	Signals <-chan os.Signal
	// Starting is called when the volumes are in place, before the first
	// container runs.
	Starting func()
	// Warn is told what the policy warns of.
	Warn func(text string)
}

// Run applies the objects, makes their volumes, runs their pods to the end and
// takes the volumes away from the pods again. It returns the exit code: that of
// the first container that failed, 0 if none did. When ctx ends, the pods are
// told to end, and everything is still taken back.
func (h *Host) Run(ctx context.Context, objects *manifest.Objects, output Output) (code int, err error) {
	plan, err := h.plan(objects)
	if err != nil {
		return 0, err
	}
	for _, warning := range plan.warnings {
		output.Warn(warning)
	}
	if err := h.startDrivers(ctx, plan.needed); err != nil {
		return 0, err
	}
	if err := h.write(plan); err != nil {
		return 0, err
	}
	if err := h.ensureClaims(ctx, plan); err != nil {
		return 0, errors.Join(err, h.forgetUnmade(plan))
	}
	return h.runner().runPods(ctx, plan.pods, output)
}

// podRunner runs pods whose volumes somebody brings.
type podRunner struct {
	mount   func(ctx context.Context, pod *corev1.Pod) (map[string]workload.Volume, error)
	unmount func(ctx context.Context, pod *corev1.Pod) error
	// scratch makes an empty directory that a container's root is mounted over.
	// It goes with the pod.
	scratch func(pod *corev1.Pod, container string) (string, error)
	// secret finds a Secret by namespace/name; nil if there is none.
	secret func(key string) (*corev1.Secret, error)
	hide   []string // directories that no container sees
	node   string   // this machine's name
}

// runner is for pods of this host.
func (h *Host) runner() podRunner {
	return podRunner{
		mount: func(ctx context.Context, pod *corev1.Pod) (map[string]workload.Volume, error) {
			mounted, err := h.volumes.MountPod(ctx, pod)
			if err == nil {
				err = h.options.Failpoints.Hit("host/run/mounted")
			}
			return places(mounted), err
		},
		unmount: h.volumes.UnmountPod, scratch: h.scratch, secret: h.secret, hide: h.hidden(), node: h.nodeName(),
	}
}

func (h *Host) secret(key string) (secret *corev1.Secret, err error) {
	err = h.store.View(func(tx *store.Tx) error {
		secret, err = tx.Secrets().Get(key)
		return err
	})
	return secret, err
}

// startDrivers brings up the built-in drivers that are needed, now or by what
// an earlier run left, recovers, and makes sure that the others are there.
func (h *Host) startDrivers(ctx context.Context, needed map[string]string) error {
	left, err := h.volumes.Leftovers()
	if err != nil {
		return err
	}
	for _, builtin := range h.options.Builtins {
		if _, wanted := needed[builtin.Name]; !wanted && !left.Needs(builtin.Name) {
			continue
		}
		if err := h.offer(builtin); err != nil {
			return err
		}
		if err := h.startBuiltin(ctx, builtin); err != nil {
			return err
		}
	}
	h.plugins.Settle(ctx)
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		if _, err := h.plugins.Driver(name); err != nil {
			return fmt.Errorf("%s: %w: %s", needed[name], err, h.registered())
		}
	}
	if left.Empty() {
		return nil
	}
	if err := h.volumes.Recover(ctx, left); err != nil {
		return fmt.Errorf("finish what an earlier run left: %w", err)
	}
	return nil
}

// registered says what there is, and how to get more.
func (h *Host) registered() string {
	names := h.plugins.Names()
	for _, builtin := range h.options.Builtins {
		if !slices.Contains(names, builtin.Name) {
			names = append(names, builtin.Name+" (built in)")
		}
	}
	list := strings.Join(names, ", ")
	if list == "" {
		list = "none"
	}
	return fmt.Sprintf("drivers here: %s; another one registers with a socket in %s", list, h.paths.Registry())
}

// offer stores the built-in driver's CSIDriver object if the user gave none, as
// if it was applied. One that an older program stored without being made so is
// completed.
func (h *Host) offer(builtin Builtin) error {
	if builtin.Object == nil {
		return nil
	}
	return h.store.Update(func(tx *store.Tx) error {
		known, err := tx.Drivers().Get(builtin.Name)
		if err != nil || known != nil && known.UID != "" {
			return err
		}
		if known == nil {
			known = builtin.Object.DeepCopy()
		}
		kind, _ := store.KindOf("csidrivers")
		manifest.SetDefaults(known)
		initialise(kind, known, metav1.NewTime(time.Now().Truncate(time.Second)))
		return tx.Drivers().Put(builtin.Name, known)
	})
}

func (h *Host) ensureClaims(ctx context.Context, p plan) error {
	keys := map[string]bool{}
	for _, pvc := range p.claims {
		keys[claimKey(pvc)] = true
	}
	for _, pod := range p.pods {
		for _, volume := range pod.Spec.Volumes {
			if source := volume.PersistentVolumeClaim; source != nil {
				keys[store.Key(pod.Namespace, source.ClaimName)] = true
			}
		}
	}
	var work []func() error
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		work = append(work, func() error { return h.volumes.EnsureClaim(ctx, key) })
	}
	return atOnce(work)
}

// runPods runs every pod beside the others.
func (r podRunner) runPods(ctx context.Context, pods []*corev1.Pod, output Output) (int, error) {
	containers := 0
	for _, pod := range pods {
		containers += len(pod.Spec.InitContainers) + len(pod.Spec.Containers)
	}
	var (
		mu    sync.Mutex
		first int
		work  []func() error
	)
	starting := sync.OnceFunc(output.Starting)
	spread := newBroadcast(output.Signals, containers)
	defer spread.stop()
	for _, pod := range pods {
		work = append(work, func() error {
			code, err := r.runPod(ctx, pod, podOutput{Output: output, prefix: containers > 1, name: len(pods) > 1, starting: starting, signals: spread})
			mu.Lock()
			defer mu.Unlock()
			if first == 0 {
				first = code
			}
			return err
		})
	}
	err := atOnce(work)
	return first, err
}

// podOutput is the output of one of several pods.
type podOutput struct {
	Output
	prefix, name bool // prefix lines with the container's name, and the pod's
	starting     func()
	signals      *broadcast
}

// runPod brings the volumes, runs the containers and takes the volumes away,
// whatever happened in between and also when ctx has ended.
func (r podRunner) runPod(ctx context.Context, pod *corev1.Pod, output podOutput) (code int, err error) {
	defer func() {
		if undo := r.unmount(context.WithoutCancel(ctx), pod); undo != nil {
			err = errors.Join(err, fmt.Errorf("take the volumes away from pod %s (the next run tries again): %w", store.Key(pod.Namespace, pod.Name), undo))
		}
	}()
	mounted, err := r.mount(ctx, pod)
	if err != nil {
		return 0, err
	}
	translated, err := workload.FromPod(pod, workload.Sources{
		Volumes: mounted, Node: r.node,
		Secrets: func(name string) (*corev1.Secret, error) { return r.secret(store.Key(pod.Namespace, name)) },
	})
	if err != nil {
		return 0, err
	}
	output.starting()
	for _, container := range translated.Init {
		if code, err := r.runContainer(ctx, pod, container, output); err != nil || code != 0 {
			return code, err
		}
	}
	return r.runMain(ctx, pod, translated.Main, output)
}

func places(mounted map[string]volumes.Mounted) map[string]workload.Volume {
	result := map[string]workload.Volume{}
	for name, volume := range mounted {
		result[name] = workload.Volume{Path: volume.Path, Block: volume.Block, ReadOnly: volume.ReadOnly}
	}
	return result
}

// runMain runs containers at once and returns the first code that is not zero.
func (r podRunner) runMain(ctx context.Context, pod *corev1.Pod, containers []workload.Container, output podOutput) (int, error) {
	var (
		mu    sync.Mutex
		first int
		work  []func() error
	)
	for _, container := range containers {
		work = append(work, func() error {
			code, err := r.runContainer(ctx, pod, container, output)
			mu.Lock()
			defer mu.Unlock()
			if first == 0 {
				first = code
			}
			return err
		})
	}
	err := atOnce(work)
	return first, err
}

func (r podRunner) runContainer(ctx context.Context, pod *corev1.Pod, container workload.Container, output podOutput) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("container %q is not started: %w", container.Name, context.Cause(ctx))
	}
	if output.Signals != nil {
		// The signal that ended ctx reaches the container by itself, as it is.
		ctx = context.WithoutCancel(ctx)
	}
	var err error
	if container.Scratch, err = r.scratch(pod, container.Name); err != nil {
		return 0, err
	}
	container.Hide = r.hide
	streams := workload.Streams{Stdout: output.Stdout, Stderr: output.Stderr}
	if output.prefix {
		name := container.Name
		if output.name {
			name = pod.Name + "/" + name
		}
		out, err := newPrefixer(output.Stdout, name), newPrefixer(output.Stderr, name)
		defer out.flush()
		defer err.flush()
		streams = workload.Streams{Stdout: out, Stderr: err}
	}
	return workload.Run(ctx, container, streams, output.signals.subscribe())
}

// scratch makes an empty directory that a container's root is mounted over. It
// goes with the pod's directory.
func (h *Host) scratch(pod *corev1.Pod, container string) (string, error) {
	directory := h.paths.Container(pod.UID, container)
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return "", fmt.Errorf("make the container's directory: %w", err)
	}
	return directory, nil
}

// nodeName is this machine's name, as Kubernetes would have it.
func (h *Host) nodeName() string { return machineName() }

func machineName() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return strings.ToLower(name)
}

// atOnce does everything in parallel and returns all the errors.
func atOnce(work []func() error) error {
	failed := make([]error, len(work))
	var group sync.WaitGroup
	for i, do := range work {
		group.Go(func() { failed[i] = do() })
	}
	group.Wait()
	return errors.Join(failed...)
}
