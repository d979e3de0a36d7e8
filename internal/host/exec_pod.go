package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/pods"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

// Exec runs a command in a container of a pod.
func (h *Host) Exec(ctx context.Context, request api.ExecRequest, streams api.ExecStreams) (int, error) {
	code, err := h.pods.Exec(ctx, store.Key(request.Namespace, request.Pod), request.Container, request.Command, workload.Session{
		Stdin: streams.Stdin, Stdout: streams.Stdout, Stderr: streams.Stderr, Terminal: request.Terminal,
		Signals: streams.Signals, Sizes: streams.Sizes,
	})
	return code, ofPod(err)
}

// Copy copies between a container of a pod and the streams.
func (h *Host) Copy(ctx context.Context, request api.CopyRequest, streams api.ExecStreams) error {
	return ofPod(h.pods.Copy(ctx, store.Key(request.Namespace, request.Pod), request.Container, workload.Copy{
		Path: request.Path, Upload: request.Upload, Name: request.Name, NoPreserve: request.NoPreserve,
	}, workload.Session{Stdin: streams.Stdin, Stdout: streams.Stdout, Stderr: streams.Stderr}))
}

// ofPod classifies an error about a container.
func ofPod(err error) error {
	switch {
	case errors.Is(err, pods.ErrNoPod):
		return fmt.Errorf("%w: %w", api.ErrNotFound, err)
	case errors.Is(err, workload.ErrNotRunning), errors.Is(err, pods.ErrNoContainer):
		return fmt.Errorf("%w: %w", api.ErrInvalid, err)
	}
	return err
}
