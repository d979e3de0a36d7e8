package pods

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

// Exec runs a command in a container that runs, and returns its exit code. The container's
// name may be empty if the pod has one container. The error is workload.ErrNotRunning if
// it does not run.
func (m *Manager) Exec(ctx context.Context, podKey, name string, command []string, session workload.Session) (int, error) {
	pod, spec, err := m.container(podKey, name)
	if err != nil {
		return 0, err
	}
	container, err := workload.ForExec(pod, spec, command,
		workload.Sources{Node: m.options.NodeName, Values: m.valuesIn(pod.Namespace)})
	if err != nil {
		return 0, fmt.Errorf("pod %q: %w", podKey, err)
	}
	code, err := m.shim(pod.UID, spec.Name).Exec(ctx, container, session)
	if err != nil {
		err = fmt.Errorf("pod %q, container %q: %w", podKey, spec.Name, err)
	}
	return code, err
}

// Copy copies between a container that runs and the session's streams. The container's name
// and the error are as for Exec.
func (m *Manager) Copy(ctx context.Context, podKey, name string, what workload.Copy, session workload.Session) error {
	pod, spec, err := m.container(podKey, name)
	if err != nil {
		return err
	}
	container, err := workload.ForCopy(pod, spec)
	if err == nil {
		err = m.shim(pod.UID, spec.Name).Copy(ctx, container, what, session)
	}
	if err != nil {
		err = fmt.Errorf("pod %q, container %q: %w", podKey, spec.Name, err)
	}
	return err
}

// container finds a container of a pod; an empty name is that of its only one.
func (m *Manager) container(podKey, name string) (*corev1.Pod, *corev1.Container, error) {
	pod, err := m.get(podKey)
	if err != nil {
		return nil, nil, err
	}
	if pod == nil {
		return nil, nil, fmt.Errorf("pod %q: %w", podKey, ErrNoPod)
	}
	if name, err = chooseContainer(pod, name); err != nil {
		return nil, nil, fmt.Errorf("pod %q: %w", podKey, err)
	}
	specs := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	index := slices.IndexFunc(specs, func(c corev1.Container) bool { return c.Name == name })
	return pod, &specs[index], nil
}
