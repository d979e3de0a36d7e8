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
	pod, err := m.get(podKey)
	if err != nil {
		return 0, err
	}
	if pod == nil {
		return 0, fmt.Errorf("pod %q: %w", podKey, ErrNoPod)
	}
	if name, err = chooseContainer(pod, name); err != nil {
		return 0, fmt.Errorf("pod %q: %w", podKey, err)
	}
	specs := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	index := slices.IndexFunc(specs, func(c corev1.Container) bool { return c.Name == name })
	container, err := workload.ForExec(pod, &specs[index], command,
		workload.Sources{Node: m.options.NodeName, Values: m.valuesIn(pod.Namespace)})
	if err != nil {
		return 0, fmt.Errorf("pod %q: %w", podKey, err)
	}
	code, err := m.shim(pod.UID, name).Exec(ctx, container, session)
	if err != nil {
		err = fmt.Errorf("pod %q, container %q: %w", podKey, name, err)
	}
	return code, err
}
