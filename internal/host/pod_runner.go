package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

// Output is where a workload's output goes, and where its signals come from.
type Output struct {
	Stdout, Stderr io.Writer
	// Signals are passed on to the workload while it runs.
	Signals <-chan os.Signal
	// Starting is called when the volumes are mounted, before the first
	// container runs.
	Starting func()
	// Warn is called with each warning of the policy.
	Warn func(text string)
}

// podRunner runs pods whose volumes its caller mounts.
type podRunner struct {
	mount   func(ctx context.Context, pod *corev1.Pod) (map[string]workload.Volume, error)
	unmount func(ctx context.Context, pod *corev1.Pod) error
	// scratch makes an empty directory that a container's root is mounted over.
	// It is removed together with the pod.
	scratch func(pod *corev1.Pod, container string) (string, error)
	// values finds those of a Secret or a ConfigMap, by kind and namespace/name; nil if
	// there is none.
	values workload.Values
	hide   []string // directories that no container sees
	node   string   // this machine's name
}

// runPods runs all pods at the same time.
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
			code, err := r.runPod(ctx, pod, podOutput{Output: output, prefix: containers > 1, name: len(pods) > 1,
				starting: starting, signals: spread})
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

// runPod mounts the volumes, runs the containers and unmounts the volumes,
// also after a failure and when ctx has ended.
func (r podRunner) runPod(ctx context.Context, pod *corev1.Pod, output podOutput) (code int, err error) {
	defer func() {
		if undo := r.unmount(context.WithoutCancel(ctx), pod); undo != nil {
			err = errors.Join(err, fmt.Errorf("take the volumes away from pod %s (the next run tries again): %w",
				store.Key(pod.Namespace, pod.Name), undo))
		}
	}()
	mounted, err := r.mount(ctx, pod)
	if err != nil {
		return 0, err
	}
	translated, err := workload.FromPod(pod, workload.Sources{
		Volumes: mounted, Node: r.node,
		Values: func(kind, name string) (map[string][]byte, error) {
			return r.values(kind, store.Key(pod.Namespace, name))
		},
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

// runMain runs containers at once and returns the first code that is not zero.
func (r podRunner) runMain(
	ctx context.Context, pod *corev1.Pod, containers []workload.Container, output podOutput,
) (int, error) {
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

func (r podRunner) runContainer(
	ctx context.Context, pod *corev1.Pod, container workload.Container, output podOutput,
) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("container %q is not started: %w", container.Name, context.Cause(ctx))
	}
	if output.Signals != nil {
		// The signal that ended ctx reaches the container without this, unchanged.
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
		out, err := NewPrefixer(output.Stdout, name), NewPrefixer(output.Stderr, name)
		defer func() { _ = errors.Join(out.Flush(), err.Flush()) }() // the container has ended: no caller is left for the error
		streams = workload.Streams{Stdout: out, Stderr: err}
	}
	return workload.Run(ctx, container, streams, output.signals.subscribe())
}

// nodeName is this machine's name, as Kubernetes would have it.
func (h *Host) nodeName() string { return cmp.Or(h.options.Machine.Name, machineName()) }

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
