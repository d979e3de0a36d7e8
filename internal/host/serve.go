package host

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/pods"
	"github.com/holdfast-csi/holdfast/internal/host/store"
	"github.com/holdfast-csi/holdfast/internal/host/volumes"
	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

// State returns the state of an object in the controllers' queues.
func (h *Host) State(kind store.Kind, key string) []api.WorkState {
	var states []api.WorkState
	for _, queue := range h.set.Group(kind.Resource) {
		state := queue.State(key)
		if !state.Running && state.Attempts == 0 {
			continue
		}
		work := api.WorkState{Controller: queue.Name(), Running: state.Running, Attempts: state.Attempts, Next: state.Next}
		if state.Running {
			work.Since = state.Since
		}
		if state.LastError != nil {
			work.LastError = state.LastError.Error()
		}
		states = append(states, work)
	}
	return states
}

// Logs writes the output of a container.
func (h *Host) Logs(ctx context.Context, request api.LogRequest, out io.Writer) error {
	said, err := h.pods.Logs(ctx, store.Key(request.Namespace, request.Pod), request.Container, pods.LogOptions{
		Previous: request.Previous, LogOptions: workload.LogOptions{
			Follow: request.Follow, Tail: int(request.Tail), Since: request.Since, Timestamps: request.Timestamps,
		},
	})
	if errors.Is(err, pods.ErrNoPod) {
		return fmt.Errorf("%w: %w", api.ErrNotFound, err)
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(out, said)
	return errors.Join(err, said.Close())
}

// Mounts reports of each mounted volume of a pod whether its filesystem answers.
func (h *Host) Mounts(ctx context.Context, key string) ([]api.Mount, error) {
	checks, err := h.volumes.CheckMounts(ctx, key)
	all := []api.Mount{}
	for _, check := range checks {
		mount := api.Mount{Volume: check.Volume, Driver: check.Driver, Path: check.Path}
		if check.Err != nil {
			mount.Error = check.Err.Error()
		}
		all = append(all, mount)
	}
	return all, err
}

// Stats returns the usage of a claim's volume.
func (h *Host) Stats(ctx context.Context, key string) (api.VolumeStats, error) {
	stats, err := h.volumes.Stats(ctx, key)
	if errors.Is(err, volumes.ErrNoClaim) {
		err = fmt.Errorf("%w: %w", api.ErrNotFound, err)
	}
	return api.VolumeStats{
		Claim: key, Volume: stats.Handle, Driver: stats.Driver,
		Bytes: usage(stats.Bytes), Inodes: usage(stats.Inodes),
	}, err
}

// usage returns nil for a figure that the driver does not report.
func usage(of volumes.Usage) *api.Usage {
	if of == (volumes.Usage{}) {
		return nil
	}
	return &api.Usage{Total: of.Total, Used: of.Used, Available: of.Available}
}
