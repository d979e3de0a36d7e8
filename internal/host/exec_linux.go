package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/workload"
)

// Exec runs a command with volumes of a running host at its paths, in its own mount and
// process namespaces, and returns its exit code. The volumes are held for as long as
// this process lives, however it ends; when it is killed, so is everything that the
// command started. An error together with a code that is not 0 is about the way back.
func Exec(ctx context.Context, client *api.Client, options ExecOptions) (code int, err error) {
	directory, err := os.Getwd()
	if err != nil {
		return 0, fmt.Errorf("where the command is to run: %w", err)
	}
	groups, err := os.Getgroups()
	if err != nil {
		return 0, fmt.Errorf("the groups of this process: %w", err)
	}
	lease, err := client.Lease(ctx, options.Hold)
	if err != nil {
		return 0, err
	}
	// The signal that ended the command must not prevent the release of its volumes.
	ctx = context.WithoutCancel(ctx)
	defer func() {
		if undo := endLease(ctx, client, options.Hold, lease); undo != nil {
			err = errors.Join(err, fmt.Errorf("give the volumes back: %w", undo))
		}
	}()
	container := workload.Container{
		Name: options.Hold.Name, Command: options.Command, Env: os.Environ(), Directory: directory,
		UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), Hide: []string{options.Root}, //nolint:gosec // ids of Linux
		Scratch: filepath.Join(lease.Directory, "root"), Direct: true, Terminal: options.Terminal,
	}
	for _, group := range groups {
		container.Groups = append(container.Groups, uint32(group)) //nolint:gosec // ids of Linux
	}
	for i, volume := range options.Hold.Volumes {
		mount, ok := lease.Volumes[volume.Name]
		if !ok {
			return 0, fmt.Errorf("the host did not say where volume %q is", volume.Name)
		}
		container.Mounts = append(container.Mounts, workload.Mount{
			Source: mount.Path, Target: options.Targets[i], ReadOnly: mount.ReadOnly, Device: mount.Block,
		})
	}
	if err := os.MkdirAll(container.Scratch, 0o700); err != nil {
		return 0, fmt.Errorf("make a directory for the command's view: %w", err)
	}
	signals := make(chan os.Signal, 16)
	// SIGTSTP stops this process as it stops the command.
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1,
		syscall.SIGUSR2, syscall.SIGALRM)
	defer signal.Stop(signals)
	if options.Starting != nil {
		options.Starting()
	}
	for _, warning := range lease.Warnings {
		options.Warn(warning)
	}
	return workload.Run(ctx, container, workload.Streams{Stdin: options.Stdin, Stdout: options.Stdout,
		Stderr: options.Stderr}, signals)
}
