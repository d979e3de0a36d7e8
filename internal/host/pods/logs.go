package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

// LogOptions select the part of a container's output.
type LogOptions struct {
	workload.LogOptions
	// Previous asks for the attempt before the last restart, which is not followed.
	Previous bool
}

// The errors of a log that does not exist.
var (
	ErrNoPod       = errors.New("the pod does not exist")
	ErrNoContainer = errors.New("the pod has no such container")
	ErrNoPrevious  = errors.New("there is no previous attempt")
)

// Logs returns a container's output as it was written. The container's name may
// be empty if the pod has one container. The caller closes the reader.
func (m *Manager) Logs(ctx context.Context, podKey, container string, o LogOptions) (io.ReadCloser, error) {
	pod, err := m.get(podKey)
	if err != nil {
		return nil, err
	}
	if pod == nil {
		return nil, fmt.Errorf("pod %q: %w", podKey, ErrNoPod)
	}
	if container, err = chooseContainer(pod, container); err != nil {
		return nil, fmt.Errorf("pod %q: %w", podKey, err)
	}
	shim := m.shim(pod.UID, container)
	state, err := shim.Last()
	if err != nil {
		return nil, fmt.Errorf("pod %q, container %q: %w", podKey, container, err)
	}
	attempt := state.Attempt
	if o.Previous {
		if attempt--; attempt < 0 {
			return nil, fmt.Errorf("pod %q, container %q: %w", podKey, container, ErrNoPrevious)
		}
	}
	if state.Phase == "" {
		return nil, fmt.Errorf("pod %q: container %q is waiting to start", podKey, container)
	}
	o.Follow = o.Follow && !o.Previous
	return shim.ReadLog(ctx, attempt, o.LogOptions)
}

func chooseContainer(pod *corev1.Pod, name string) (string, error) {
	var names []string
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		names = append(names, c.Name)
	}
	switch {
	case name == "" && len(pod.Spec.Containers) == 1:
		return names[0], nil
	case name == "":
		return "", fmt.Errorf("a container name must be specified, one of %s", strings.Join(names, ", "))
	case slices.Contains(names, name):
		return name, nil
	}
	return "", fmt.Errorf("container %q: %w; it has %s", name, ErrNoContainer, strings.Join(names, ", "))
}
