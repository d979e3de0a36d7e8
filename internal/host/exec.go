package host

import (
	"context"
	"errors"
	"io"

	"github.com/holdfast-csi/holdfast/internal/host/api"
)

// ExecOptions name a command and its volumes.
type ExecOptions struct {
	// Root is the host's root directory.
	Root string
	Hold api.HoldRequest
	// Targets are the absolute paths at which the command sees the volumes of
	// Hold, in their order.
	Targets []string
	Command []string
	// Stdin, Stdout and Stderr are the command's; with Terminal, Stdin is the
	// terminal whose foreground process this is.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       bool
	// Starting is called when the volumes are mounted.
	Starting func()
	// Warn is called with each warning of the policy.
	Warn func(text string)
}

// releaseSeconds is how long the end of a command waits for its volumes to be
// released; the host continues afterwards.
const releaseSeconds = 60

// endLease releases the volumes of a lease. If the host does not run, its next start
// finds from the lease that the process is gone.
func endLease(ctx context.Context, client *api.Client, request api.HoldRequest, lease *api.Lease) error {
	err := client.Release(ctx, api.ReleaseRequest{Namespace: request.Namespace, Name: request.Name,
		UID: lease.UID}, releaseSeconds)
	if errors.Is(err, api.ErrNotFound) || errors.Is(err, api.ErrNoHost) {
		err = nil
	}
	return errors.Join(err, lease.Close())
}
